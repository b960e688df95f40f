#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstring>
#include <memory>

#include "headrace/buffer.h"
#include "headrace/clock.h"
#include "measure/samples.h"
#include "measure/steps.h"
#include "measure/team.h"

namespace headrace {
namespace {

constexpr unsigned kSamples = 5;
// Four last-level caches, so that each pass finds nothing cached, within limits: not too short to
// time, not too long to be brief.
constexpr std::uint64_t kCaches = 4;
constexpr Bytes kLeast = 64_MiB;
constexpr Bytes kMost = 512_MiB;

using Slice = std::span<std::byte>;

// 32-byte words (two SSE registers on plain x86-64): wide enough that loads, not instructions,
// set the pace.
using Word = std::uint64_t __attribute__((vector_size(32), may_alias));

void read_pass(Slice, Slice from) {
  const auto* word = reinterpret_cast<const Word*>(from.data());
  const auto* end = word + from.size() / sizeof(Word);
  Word sum[4] = {};
  for (; word + 4 <= end; word += 4) {
    for (int i = 0; i < 4; ++i) sum[i] ^= word[i];
  }
  const Word all = sum[0] ^ sum[1] ^ sum[2] ^ sum[3];
  asm volatile("" : : "m"(all));  // somebody might look at it: the reads have to be done
}

void write_pass(Slice to, Slice) { std::memset(to.data(), 3, to.size()); }

void copy_pass(Slice to, Slice from) { copy_bytes(to.data(), from.data(), to.size()); }

struct Pass {
  const char* what;
  void (*run)(Slice to, Slice from);
};
constexpr Pass kPasses[] = {
    {"memory read", read_pass}, {"memory write", write_pass}, {"memory copy", copy_pass}};

// The part of `all` that thread `i` of `n` works on; whole pages.
Slice slice_of(Slice all, std::size_t i, std::size_t n) {
  const std::size_t part = all.size() / n / 4096 * 4096;
  return all.subspan(i * part, part);
}

// Rates of a pass by all CPUs at once: bytes of all over the time of the slowest.
Result<std::vector<double>> sample_pass(const Pass& pass, const CpuSet& cpus, Slice to,
                                        Slice from) {
  std::vector<std::vector<Nanoseconds>> times(cpus.size(), std::vector<Nanoseconds>(kSamples));
  std::barrier line(static_cast<std::ptrdiff_t>(cpus.size()));
  const auto part = [&](std::size_t i) {
    for (unsigned sample = 0; sample < kSamples; ++sample) {
      line.arrive_and_wait();
      const Nanoseconds start = system_clock().now();
      pass.run(slice_of(to, i, cpus.size()), slice_of(from, i, cpus.size()));
      times[i][sample] = system_clock().now() - start;
    }
  };
  if (auto status = run_pinned(cpus, part); !status) {
    return std::unexpected<Error>(std::move(status).error());
  }
  const Bytes moved{slice_of(to, 0, cpus.size()).size() * cpus.size()};
  std::vector<double> rates;
  for (unsigned sample = 0; sample < kSamples; ++sample) {
    Nanoseconds slowest{1};
    for (const auto& own : times) slowest = std::max(slowest, own[sample]);
    rates.push_back((moved / slowest).value);
  }
  return rates;
}

void measure_node(Brief& brief, NodeId id, const CpuSet& cpus) {
  const Bytes cache = cache_to_pass(brief.machine, cpus[0]);
  const Bytes bytes = std::clamp(cache * kCaches, kLeast, kMost);
  const auto to = allocate(brief.machine, bytes, Placement::on(id));
  const auto from = allocate(brief.machine, bytes, Placement::on(id));
  if (to && from) std::memset((*from)->bytes().data(), 1, bytes.value);
  std::vector<std::size_t> teams{1};
  if (cpus.size() > 1) teams.push_back(cpus.size());
  for (const std::size_t team : teams) {
    for (const Pass& pass : kPasses) {
      const RateRow row{
          .what = pass.what,
          .where = fmt::format("node {}, {} thread{}", raw(id), team, team == 1 ? "" : "s"),
          .from = id,
          .to = id};
      if (!to || !from) {
        brief.rows.push_back(row_without(row, (to ? from : to).error().message));
        continue;
      }
      const CpuSet some(cpus.begin(), cpus.begin() + static_cast<std::ptrdiff_t>(team));
      const auto rates = sample_pass(pass, some, (*to)->bytes(), (*from)->bytes());
      brief.rows.push_back(rates ? row_with(row, *rates) : row_without(row, rates.error().message));
    }
  }
}

}  // namespace

std::vector<Step> memory_steps(const Machine& machine) {
  std::vector<Step> steps;
  for (const Node& node : machine.nodes) {
    if (!node.byte_addressable()) continue;
    CpuSet cpus = usable_cpus(&node);
    if (cpus.empty()) cpus = usable_cpus();
    if (cpus.empty()) continue;
    const NodeId id = node.id;
    const auto left_out = [id] {
      return RateRow{
          .what = "memory", .where = fmt::format("node {}", raw(id)), .from = id, .to = id};
    };
    steps.push_back({[id, cpus](Brief& brief) { measure_node(brief, id, cpus); }, left_out});
  }
  return steps;
}

}  // namespace headrace
