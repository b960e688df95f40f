// SPDX-License-Identifier: Apache-2.0
// The points of a quick session.
#include <algorithm>
#include <set>

#include "headrace/measure.h"
#include "headrace/placement.h"
#include "measure/instruments/worker_pool.h"
#include "measure/session/experiment.h"

namespace headrace {
namespace {

using namespace session;

// Only a bound for slow memories and disks: all points fit into it, also on the largest machines,
// as it grows with the memories. About a third of it is used, since point costs assume three
// repetitions, and memory that no other point has mapped.
constexpr Nanoseconds kQuickBudget = std::chrono::seconds{8};
constexpr Nanoseconds kQuickBudgetPerMemory = std::chrono::seconds{10};
constexpr unsigned kQuickRounds = 3;

ParameterValue number(std::uint64_t value) { return value; }

// All CPUs of the node that this process may use, and one alone.
std::uint64_t all_threads(const Node& cpu_node) { return usable_cpus(&cpu_node).size(); }
ParameterChoice one_and_all(const Node& cpu_node) {
  const std::set<std::uint64_t> counts{1, all_threads(cpu_node)};
  return std::vector<ParameterValue>(counts.begin(), counts.end());
}

constexpr Bytes kLargeCopy = 64_MiB;

Selection copies(const Node& from, const Node& to, std::vector<ParameterValue> sizes,
                 std::uint64_t threads) {
  return {"copy",
          {{"engine", "cpu"},
           {"from", std::uint64_t{raw(from.id)}},
           {"to", std::uint64_t{raw(to.id)}},
           {"state", "cold"},
           {"bytes", std::move(sizes)},
           {"threads", threads}}};
}

// The node whose cores copy to `to`; nullptr: this process may use none of them.
const Node* copies_to(const Machine& machine, const Node& to) {
  const Node* const host = host_of(machine, to);
  return host == nullptr || usable_cpus(host).empty() ? nullptr : host;
}

// Small, usual and large copies by all threads: a line T(V) takes three sizes.
void add_copies(std::vector<Selection>& chosen, const Machine& machine, const Node& from,
                const Node& to) {
  const Node* const host = copies_to(machine, to);
  if (host == nullptr) return;
  const std::vector<ParameterValue> sizes{number((64_KiB).value), number((1_MiB).value),
                                          number(kLargeCopy.value)};
  chosen.push_back(copies(from, to, sizes, all_threads(*host)));
}

Selection reads_and_writes(const Node& cpu_node, const Node& memory) {
  return {"bandwidth",
          {{"cpu_node", std::uint64_t{raw(cpu_node.id)}},
           {"memory_node", std::uint64_t{raw(memory.id)}},
           {"mix", std::vector<ParameterValue>{"read", "write"}},
           {"threads", one_and_all(cpu_node)}}};
}

// One access at a time shows the latency, several the device's parallelism, large blocks its
// bandwidth.
Selection transfers(const char* operation, Bytes block, std::vector<ParameterValue> depths) {
  return {"storage",
          {{"operation", operation},
           {"by", "io_uring"},
           {"io", "direct"},
           {"bytes", block.value},
           {"depth", std::move(depths)}}};
}

}  // namespace

MeasureOptions quick_session(const Machine& machine, const std::filesystem::path& directory) {
  const std::vector<const Node*> memories = memory_nodes(machine);
  MeasureOptions options{.directory = directory,
                         .budget = kQuickBudget + kQuickBudgetPerMemory * memories.size(),
                         .rounds = kQuickRounds,
                         .repetitions = 1,
                         .noise_checks = false};
  std::vector<Selection>& chosen = options.selections;
  for (const Node* memory : memories) {
    const Node* const host = copies_to(machine, *memory);
    if (host == nullptr) continue;
    chosen.push_back(reads_and_writes(*host, *memory));
    add_copies(chosen, machine, *memory, *memory);
    chosen.push_back(copies(*memory, *memory, {number(kLargeCopy.value)}, 1));
  }
  chosen.push_back(transfers("read", 4_KiB, {number(1), number(32)}));
  chosen.push_back(transfers("read", 64_KiB, {number(1), number(16)}));
  chosen.push_back(transfers("read", 1_MiB, {number(1), number(16)}));
  chosen.push_back(transfers("write", 1_MiB, {number(16)}));
  for (const Node* from : nodes_with_cpus(machine)) {
    if (!from->capacity) continue;
    for (const Node* to : one_of_each_kind(machine, *from)) {
      if (to == from) continue;
      add_copies(chosen, machine, *from, *to);
      add_copies(chosen, machine, *to, *from);
    }
  }
  return options;
}

}  // namespace headrace
