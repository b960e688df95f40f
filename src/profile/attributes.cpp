// SPDX-License-Identifier: Apache-2.0
#include "profile/attributes.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>
#include <sstream>
#include <tuple>

#include "headrace/cpus.h"
#include "headrace/findings.h"
#include "topology/topology.h"

namespace headrace {
namespace {

NodeId node_id(std::uint64_t number) { return NodeId{static_cast<std::uint32_t>(number)}; }

// True if the working set of a latency row is in memory and not in a cache of its CPUs.
bool passes_caches(const Machine& machine, const Row& row) {
  const auto* bytes = row.number("bytes");
  const Node* node = machine.find(node_id(*row.number("cpu_node")));
  if (bytes == nullptr || node == nullptr || node->cpus.empty()) return false;
  return *bytes >= 2 * cache_to_pass(machine, {node->cpus.front()}).value;
}

// The row with the parameters of a row that it stands for: "cpu_node=1 memory_node=9".
Row in_place_of(Row row, const std::string& other) {
  std::istringstream words(other);
  for (std::string word; words >> word;) {
    const std::size_t equals = word.find('=');
    for (auto& [name, value] : row.parameters) {
      if (equals == std::string::npos || name != word.substr(0, equals)) continue;
      std::uint64_t number = 0;
      const auto read =
          std::from_chars(word.data() + equals + 1, word.data() + word.size(), number);
      if (read.ec == std::errc{}) value = number;
    }
  }
  return row;
}

enum class What : std::uint8_t { latency, read, write };
// Memory node, CPU node, kind of value.
using Fact = std::tuple<std::uint64_t, std::uint64_t, What>;

class Facts {
 public:
  explicit Facts(const Profile& profile) {
    for (const Row& row : profile.rows) {
      take(profile.machine, row);
      for (const std::string& other : row.stands_for)
        take(profile.machine, in_place_of(row, other));
    }
  }

  // Values of quiet rows if there are any. Without bandwidths of pairs whose largest number of
  // threads was not measured.
  std::map<Fact, double> known() const {
    std::map<Fact, double> known = noisy_;
    for (const auto& [fact, value] : quiet_) known[fact] = value;
    std::erase_if(known, [&](const auto& each) {
      return std::get<What>(each.first) != What::latency && !complete_.contains(each.first);
    });
    return known;
  }

 private:
  void take(const Machine& machine, const Row& row) {
    if (row.number("memory_node") == nullptr || row.number("cpu_node") == nullptr) return;
    const std::uint64_t memory = *row.number("memory_node");
    const std::uint64_t cpu = *row.number("cpu_node");
    if (row.experiment == "latency") {
      const bool asked = row.word("window") == "all" && row.word("pages") == "huge";
      // The whole buffer is the largest working set, and therefore the slowest.
      if (asked && passes_caches(machine, row)) keep({memory, cpu, What::latency}, row);
      return;
    }
    // Random access reaches less than the memory's bandwidth.
    if (row.experiment != "bandwidth" || row.parameter("pattern") != nullptr) return;
    const std::string_view mix = row.word("mix");
    if (mix != "read" && mix != "nt_write") return;
    const Fact fact{memory, cpu, mix == "read" ? What::read : What::write};
    const std::uint64_t threads = *row.number("threads");
    std::uint64_t& most = most_threads_[fact];
    if (threads >= most) {
      most = threads;
      if (row.value) complete_.insert(fact);
      if (!row.value) complete_.erase(fact);
    }
    keep(fact, row);
  }

  void keep(const Fact& fact, const Row& row) {
    if (!row.value) return;
    double& best = (row.has_flag("noisy") ? noisy_ : quiet_)[fact];
    best = std::max(best, row.value->median);
  }

  std::map<Fact, double> quiet_;
  std::map<Fact, double> noisy_;
  std::map<Fact, std::uint64_t> most_threads_;
  std::set<Fact> complete_;
};

AccessAttributes& measured_access(Node& node, NodeId initiator) {
  const auto known = std::ranges::find_if(node.access, [&](const AccessAttributes& access) {
    return access.measured && access.initiator == initiator;
  });
  if (known != node.access.end()) return *known;
  node.access.push_back({.initiator = initiator, .source = "headrace measure", .measured = true});
  return node.access.back();
}

void put_access(Machine& machine, const std::map<Fact, double>& known) {
  if (known.empty()) return;
  for (Node& node : machine.nodes) {
    std::erase_if(node.access, [](const auto& access) { return access.measured; });
  }
  for (const auto& [fact, value] : known) {
    const auto& [memory, cpu, what] = fact;
    const auto node = std::ranges::find(machine.nodes, node_id(memory), &Node::id);
    if (node == machine.nodes.end()) continue;
    AccessAttributes& access = measured_access(*node, node_id(cpu));
    switch (what) {
      case What::latency: access.read_latency = Nanoseconds{std::llround(value)}; break;
      case What::read: access.read_bandwidth = BytesPerSecond{value}; break;
      case What::write: access.write_bandwidth = BytesPerSecond{value}; break;
    }
  }
}

// Replaces the previous rate of this engine and these nodes.
void put_rate(Machine& machine, const CopyRate& rate) {
  std::erase_if(machine.copy_rates, [&](const CopyRate& old) {
    return old.engine == rate.engine && old.from == rate.from && old.to == rate.to;
  });
  machine.copy_rates.push_back(rate);
}

// The engine `cpu` copies with all cores of its node, and its data is rarely cached.
void put_copy_rates(Profile& profile) {
  Machine& machine = profile.machine;
  std::map<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>, CopyFit> widest;
  for (const CopyFit& fit : copy_fits(profile)) {
    if (fit.engine != "cpu" || fit.series.state != "cold") continue;
    CopyFit& known = widest[{fit.series.cpu_node, fit.series.from, fit.series.to}];
    if (fit.series.threads >= known.series.threads) known = fit;
  }
  for (const auto& [nodes, fit] : widest) {
    const auto engine = std::ranges::find_if(machine.engines, [&](const Engine& each) {
      return each.kind == EngineKind::cpu && each.home == node_id(fit.series.cpu_node);
    });
    if (engine == machine.engines.end()) continue;
    const CopyRate rate{.engine = engine->id,
                        .from = node_id(fit.series.from),
                        .to = node_id(fit.series.to),
                        .latency = Nanoseconds{std::llround(fit.latency_ns)},
                        .bandwidth = BytesPerSecond{fit.bandwidth},
                        .source = "headrace measure copy, " + profile.conditions["date"]};
    put_rate(machine, rate);
  }
}

// Copies by one engine in one direction: the latency of the smallest single copy, and the bandwidth
// of the best copies.
class BestOfCopies {
 public:
  void add(double rate) { best_ = std::max(best_, rate); }
  void add_single(std::uint64_t bytes, double rate) {
    add(rate);
    if (ns_ && bytes >= smallest_) return;
    smallest_ = bytes;
    ns_ = static_cast<double>(bytes) / rate * 1e9;
  }
  // Nothing: no single copy was measured.
  std::optional<CopyRate> rate(EngineId engine, NodeId from, NodeId to, std::string source) const {
    if (!ns_ || best_ <= 0) return std::nullopt;
    const double latency = std::max(0.0, *ns_ - static_cast<double>(smallest_) / best_ * 1e9);
    return CopyRate{.engine = engine,
                    .from = from,
                    .to = to,
                    .latency = Nanoseconds{std::llround(latency)},
                    .bandwidth = BytesPerSecond{best_},
                    .source = std::move(source)};
  }

 private:
  std::optional<double> ns_;
  std::uint64_t smallest_ = 0;
  double best_ = 0;
};

// The memory that a row of `storage` reads into and writes from: its CPUs' node. Older profiles
// name no CPUs: then the machine's first memory.
const Node* memory_of_disk_row(const Machine& machine, const Row& row) {
  const CpuSet cpus = parse_cpu_list(row.cpus).value_or(CpuSet{});
  const Node* first = nullptr;
  for (const Node& node : machine.nodes) {
    if (!node.byte_addressable() || !node.capacity) continue;
    if (first == nullptr) first = &node;
    if (!cpus.empty() && std::ranges::find(node.cpus, cpus.front()) != node.cpus.end())
      return &node;
  }
  return first;
}

// Reads or writes by an SSD's queue past the page cache.
void put_disk_rate(Profile& profile, const Engine& engine, bool write) {
  BestOfCopies found;
  const Node* memory = nullptr;
  for (const Row& row : profile.rows) {
    if (row.experiment != "storage" || !row.value || row.value->median <= 0) continue;
    const auto *node = row.number("node"), *bytes = row.number("bytes");
    const auto* depth = row.number("depth");
    const bool wanted = row.word("operation") == (write ? "write" : "read") &&
                        row.word("io") == "direct" && row.word("by") == "io_uring";
    if (!wanted || node == nullptr || node_id(*node) != engine.home) continue;
    found.add(row.value->median);
    memory = memory_of_disk_row(profile.machine, row);
    if (bytes != nullptr && depth != nullptr && *depth == 1) {
      found.add_single(*bytes, row.value->median);
    }
  }
  if (memory == nullptr) return;
  const auto rate =
      found.rate(engine.id, write ? memory->id : engine.home, write ? engine.home : memory->id,
                 "headrace measure storage, " + profile.conditions["date"]);
  if (rate) put_rate(profile.machine, *rate);
}

// Copies of pinned memory by a GPU's copy engines, inside the GPU and to other nodes. Copies queue
// in a stream, so the cost of each beyond its bytes is the smallest one's time. By size and number
// of copies submitted together: the rate of the kernel, and of the better of the two ways to submit
// to copy engines.
struct BatchRates {
  double kernel = 0;
  double engines = 0;
  // The kernel must take half of the time, since it uses multiprocessors that other work needs.
  bool kernel_pays() const { return engines > 0 && kernel >= 2 * engines; }
};
using Batches = std::map<std::uint64_t, std::map<std::uint64_t, BatchRates>>;

// The limit for which all sizes up to it pay, each for all measured counts from the limit's on.
GatherLimit limit_of(const Batches& batches) {
  GatherLimit limit;
  for (const auto& [bytes, counts] : batches) {
    std::optional<std::uint64_t> least;
    for (auto it = counts.rbegin(); it != counts.rend(); ++it) {
      if (it->first < 2 || !it->second.kernel_pays()) break;
      least = it->first;
    }
    if (!least) break;
    limit = {.bytes = Bytes{bytes}, .count = std::max(limit.count, *least)};
  }
  return limit;
}

// From and to which node, and the size, of an engine's row of `gpu`.
struct GpuRow {
  std::pair<NodeId, NodeId> way;
  std::uint64_t bytes;
};
// Nothing: a row of another part or engine, or without a value.
std::optional<GpuRow> gpu_row(const Row& row, const Engine& engine, std::string_view part) {
  const auto *gpu = row.number("gpu"), *node = row.number("node"), *bytes = row.number("bytes");
  const bool wanted = row.experiment == "gpu" && row.word("part") == part && row.value;
  if (!wanted || gpu == nullptr || node == nullptr || bytes == nullptr) return std::nullopt;
  if (node_id(*gpu) != engine.home) return std::nullopt;
  const NodeId other = node_id(*node);
  const bool to_gpu = row.word("direction") == "to_gpu";
  return GpuRow{to_gpu ? std::pair(other, engine.home) : std::pair(engine.home, other), *bytes};
}

// When a kernel gathers many small copies faster. Noisy rows are ignored.
void put_gpu_gather(Profile& profile, const Engine& engine) {
  std::map<std::pair<NodeId, NodeId>, Batches> found;
  for (const Row& row : profile.rows) {
    const auto batch = gpu_row(row, engine, "batch");
    const auto* count = row.number("count");
    const auto bandwidth = row.details.find("bandwidth");
    if (!batch || count == nullptr || row.has_flag("noisy") || bandwidth == row.details.end()) {
      continue;
    }
    BatchRates& rates = found[batch->way][batch->bytes][*count];
    double& best = row.word("by") == "kernel" ? rates.kernel : rates.engines;
    best = std::max(best, bandwidth->second);
  }
  for (CopyRate& rate : profile.machine.copy_rates) {
    const auto batches = found.find({rate.from, rate.to});
    if (rate.engine != engine.id || batches == found.end()) continue;
    const GatherLimit limit = limit_of(batches->second);
    rate.gather = limit.bytes > 0_B ? std::optional(limit) : std::nullopt;
  }
}

void put_gpu_rates(Profile& profile, const Engine& engine) {
  std::map<std::pair<NodeId, NodeId>, BestOfCopies> found;
  std::string_view how = "headrace measure gpu, ";
  for (const Row& row : profile.rows) {
    const auto copy = gpu_row(row, engine, "copy");
    if (!copy || row.word("by") != "engine" || row.word("direction") == "both" ||
        row.word("memory") == "pageable" || row.value->median <= 0) {
      continue;
    }
    found[copy->way].add_single(copy->bytes, row.value->median);
    if (row.basis == Basis::emulated) how = "headrace measure gpu, emulated, ";
  }
  for (const auto& [way, copies] : found) {
    const auto rate = copies.rate(engine.id, way.first, way.second,
                                  std::string(how) + profile.conditions["date"]);
    if (rate) put_rate(profile.machine, *rate);
  }
}

}  // namespace

void put_into_machine(Profile& profile) {
  put_access(profile.machine, Facts(profile).known());
  put_copy_rates(profile);
  const std::vector<Engine> engines = profile.machine.engines;
  for (const Engine& engine : engines) {
    if (engine.kind == EngineKind::gpu) {
      put_gpu_rates(profile, engine);
      put_gpu_gather(profile, engine);
    }
    if (engine.kind != EngineKind::ssd) continue;
    for (const bool write : {false, true}) put_disk_rate(profile, engine, write);
  }
}

}  // namespace headrace
