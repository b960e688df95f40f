// SPDX-License-Identifier: Apache-2.0
// Copies by CPU cores, by engine, size, threads and pair of nodes, of cached or uncached bytes.
// `headrace bench copy` is a session of these points.
//
// The copies run on the node with CPUs nearest to the destination, as a route would place them.
// - cold: each thread walks over scattered pieces of an area four times its caches, so that neither
//   side is cached.
// - hot: the same two pieces again and again.
//
// The value is payload, each copied byte counted once. `read_write` counts both sides.
// `cpu_s_per_gb` is the CPU time of all threads in seconds per 10^9 bytes. `bus_counted` is the
// counted bus traffic, where there is a counter (bus_counter.h). Engines of one size, pair and
// number of threads are measured one after the other; `ratio_to_memcpy` is the rate divided by that
// of glibc's memcpy in the same round.
//
// A request for sizes, threads or engines replaces the usual ones. With `work` "divided" all
// threads copy parts of one copy of that size, and meet before the next (lockstep.h). By default
// that is a copy of 1 MiB and one of 64 MiB between near memories, over more and more cores.
#include "measure/experiments/copy.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>

#include "core/fail.h"
#include "headrace/clock.h"
#include "headrace/copy.h"
#include "headrace/placement.h"
#include "measure/experiments/experiments.h"
#include "measure/experiments/teams.h"
#include "measure/instruments/copy_loop.h"
#include "measure/instruments/lockstep.h"
#include "measure/instruments/worker_pool.h"
#include "measure/session/alike.h"

namespace headrace::experiment_copy {

using namespace session;

namespace {

constexpr Nanoseconds kCopyingTime = std::chrono::milliseconds{20};
// Per reading of the clock.
constexpr Bytes kCopiedPerReading = 256_KiB;
constexpr std::array kCopySizes = {64_B,  1_KiB, 4_KiB,  16_KiB, 64_KiB,  256_KiB,
                                   1_MiB, 4_MiB, 16_MiB, 64_MiB, 256_MiB, 1_GiB};

constexpr Bytes kLineBytes = 64_B;

constexpr std::string_view kReference = "memcpy";

constexpr std::string_view kName = "copy";
constexpr Parameter kParameters[] = {
    {"engine", ParameterKind::word}, {"cpu_node", ParameterKind::node, false},
    {"from", ParameterKind::node},   {"to", ParameterKind::node},
    {"bytes", ParameterKind::count}, {"threads", ParameterKind::any},
    {"state", ParameterKind::word},  {"work", ParameterKind::word, false},
};
// Parameters of all rows.
constexpr auto kOfAll = std::span(kParameters).first<7>();

// Bytes that one thread copies at once: whole lines.
Bytes bytes_of_one(const CopySetting& setting) {
  if (!setting.divided) return setting.bytes;
  return std::max(kLineBytes, kLineBytes * (setting.bytes / setting.cpus.size() / kLineBytes));
}

class Copying final : public Probe {
 public:
  Copying(const CopyLoop& loop, const CopySetting& setting, std::span<std::byte> to,
          std::span<const std::byte> from)
      : loop_(loop),
        bus_(setting.bus),
        cpus_(setting.cpus),
        bytes_(bytes_of_one(setting).value),
        divided_(setting.divided) {
    const std::size_t each = to.size() / cpus_.size() / bytes_ * bytes_;
    for (std::size_t i = 0; i < cpus_.size(); ++i) {
      areas_.push_back({.to = to.subspan(i * each, each),
                        .from = from.subspan(i * each, each),
                        .walk = ScatteredWalk(each / bytes_),
                        .cold = setting.cold});
    }
  }

  Result<Sample> sample() override {
    std::vector<CommonEnd::Timed> parts(cpus_.size());  // in bytes
    Lockstep lockstep(cpus_.size());
    CommonEnd end(cpus_.size());
    const BusMeter::Window window(*bus_);
    HEADRACE_TRY(const double share, run_together(cpus_, [&](std::size_t i) {
                   parts[i] =
                       divided_ ? copy_divided(areas_[i], i, lockstep) : copy(areas_[i], end);
                 }));
    const std::optional<double> counted = window.bytes();
    double rate = 0;
    double bytes = 0;
    double busy = 0;
    double moved = 0;
    for (const CommonEnd::Timed& part : parts) {
      rate += part.done / part.seconds;
      bytes += part.done;
      busy += part.seconds;
      moved += part.moved;
    }
    Sample sample{.value = rate,
                  .details = {{"read_write", 2 * rate}, {"cpu_s_per_gb", busy / bytes * 1e9}},
                  .cpu_share = share};
    add_counted(sample, *bus_, counted, moved, rate);
    return sample;
  }

 private:
  CommonEnd::Timed copy(CopyArea& area, CommonEnd& end) const {
    // The last engine may have left the bytes elsewhere, for example written past the caches.
    if (!area.cold) loop_.run(area, bytes_, 1);
    const std::size_t times = std::max<std::size_t>(1, kCopiedPerReading.value / bytes_);
    return end.work(kCopyingTime, [&] {
      loop_.run(area, bytes_, times);
      return static_cast<double>(times * bytes_);
    });
  }

  // Copies one part of each copy. The first thread announces the end, between two copies.
  CommonEnd::Timed copy_divided(CopyArea& area, std::size_t thread, Lockstep& lockstep) const {
    if (!area.cold) loop_.run(area, bytes_, 1);
    (void)lockstep.meet();
    const Nanoseconds begin = system_clock().now();
    double copied = 0;
    do {
      loop_.run(area, bytes_, 1);
      copied += static_cast<double>(bytes_);
      if (thread == 0 && system_clock().now() - begin >= kCopyingTime) lockstep.stop();
    } while (!lockstep.meet());
    return {.done = copied, .seconds = seconds(system_clock().now() - begin), .moved = copied};
  }

  const CopyLoop loop_;
  const std::shared_ptr<BusMeter> bus_;
  const CpuSet cpus_;
  const std::size_t bytes_;  // per copy of a thread
  const bool divided_;
  std::vector<CopyArea> areas_;
};

// Bytes that all threads together need on each side; nullopt: a node is too small.
std::optional<Bytes> area_for(const Machine& machine, const CopySetting& setting, Row& row) {
  const std::uint64_t threads = setting.cpus.size();
  const Bytes one = bytes_of_one(setting);
  Bytes each = one;
  if (setting.cold) {
    const Bytes passed = past_caches(row, machine, setting.cpus, kCachesPassed, Bytes{0});
    each = cold_area(passed / (kCachesPassed * threads), one);
  }
  Bytes area = each * threads;
  for (const Node* node : {setting.from, setting.to}) area = fitting(*node, area);
  if (area / threads < one) return std::nullopt;
  if (area < each * threads) row.add_flag("shrunk");
  for (const Node* node : {setting.from, setting.to}) mark_side_cached(row, *node, area);
  return area;
}

Row copy_row(const CopySetting& setting, std::uint64_t threads) {
  Row row =
      make_row(kName, kOfAll,
               {setting.engine, id_of(setting.cpu_node), id_of(setting.from), id_of(setting.to),
                setting.bytes.value, threads, setting.cold ? "cold" : "hot"},
               "B/s");
  if (setting.divided) row.parameters.emplace_back("work", std::string("divided"));
  return row;
}

// The key that compared engines share.
std::string group_of(const CopySetting& setting) {
  return fmt::format("{} {} {} {} {} {} {}", raw(setting.cpu_node->id), raw(setting.from->id),
                     raw(setting.to->id), setting.bytes.value, setting.cpus.size(), setting.cold,
                     setting.divided);
}

// The requested values, else the usual ones.
struct CopyChoice {
  std::vector<std::string> engines;
  std::vector<Bytes> sizes;
  std::vector<std::uint64_t> threads;
  bool sizes_asked = false;
  bool threads_asked = false;
};

CopyChoice choice_of(const Scope& scope, const CpuSet& cpus) {
  CopyChoice choice{.engines = scope.words("engine"), .threads = scope.numbers("threads")};
  if (choice.engines.empty()) {
    // The kernels of another host's CPUs are unknown.
    choice.engines =
        scope.here ? CopyLoop::all() : std::vector<std::string>{std::string(kReference), "cpu"};
  }
  choice.threads_asked = !choice.threads.empty();
  if (!choice.threads_asked) {
    for (const std::size_t count : thread_counts(cpus.size())) choice.threads.push_back(count);
  }
  for (const std::uint64_t bytes : scope.numbers("bytes")) choice.sizes.push_back(Bytes{bytes});
  choice.sizes_asked = !choice.sizes.empty();
  if (!choice.sizes_asked) choice.sizes.assign(kCopySizes.begin(), kCopySizes.end());
  return choice;
}

// The point, or the reason why it cannot be measured. `setting.cpus`: all CPUs of the node in the
// order in which threads take them; the first `threads` are used.
Point point_of(const Scope& scope, CopySetting setting, std::uint64_t threads, unsigned rank) {
  const CpuSet cpus = usable_cpus(setting.cpu_node);
  Row row = copy_row(setting, threads);
  if (threads == 0 || setting.bytes == Bytes{0}) {
    return without(std::move(row), "nothing is copied; ask for at least one byte and one thread");
  }
  if (threads > cpus.size()) {
    return without(std::move(row),
                   fmt::format("{} threads asked for, but this process may use {} CPUs of node {}",
                               threads, cpus.size(), raw(setting.cpu_node->id)));
  }
  setting.cpus = first_of(setting.cpus, threads);
  row.cpus = list_of_cpus(setting.cpus);
  Point point = copy_point(scope.machine, setting, std::move(row), rank);
  point.comparable = {.group = group_of(setting),
                      .detail = "ratio_to_memcpy",
                      .reference = setting.engine == kReference};
  return point;
}

// A copy is never hot if both its sides exceed the caches of all threads.
bool fits_caches(const Machine& machine, Bytes bytes, const CpuSet& cpus, std::uint64_t threads) {
  if (threads == 0 || threads > cpus.size()) return true;  // its row has the reason
  const CpuSet own(cpus.begin(), cpus.begin() + static_cast<std::ptrdiff_t>(threads));
  return bytes * 4 * threads <= cache_to_pass(machine, own);
}

// Pairs of nodes that were not requested get only the engines that programs get, with one thread
// and all.
void add_pair(std::vector<Point>& points, const Scope& scope, CopySetting setting, bool all) {
  const CpuSet cpus = usable_cpus(setting.cpu_node);
  const CopyChoice choice = choice_of(scope, cpus);
  const bool local = setting.from == setting.to;
  const bool near = distance_of(scope.machine, *setting.from, *setting.to) == "near";
  for (const std::string& engine : choice.engines) {
    const bool usual = engine == kReference || engine == "cpu";
    if (!usual && !all) continue;
    setting.engine = engine;
    for (const Bytes bytes : choice.sizes) {
      setting.bytes = bytes;
      for (const bool cold : {true, false}) {
        setting.cold = cold;
        if (!cold && !all) continue;
        const bool wanted = usual && cold && bytes >= 64_KiB && bytes <= 64_MiB;
        const bool large = engine == "cpu" && cold && (bytes == 1_MiB || bytes == 64_MiB);
        for (const std::uint64_t threads : choice.threads) {
          // First all cores, between near memories.
          const bool first = large && near && threads == cpus.size();
          const unsigned rank = first ? 1 : wanted ? (local ? 2 : 3) : 4;
          const bool between = threads > 1 && threads < cpus.size();
          if (!all && !choice.threads_asked && between) continue;
          const bool hot = fits_caches(scope.machine, bytes, cpus, threads);
          if (!cold && !hot && !choice.sizes_asked) continue;
          points.push_back(point_of(scope, setting, threads, rank));
          const bool by_default = !choice.sizes_asked && !choice.threads_asked;
          if (!scope.asks("work") && !(by_default && large && near && threads > 1)) continue;
          if (!cold || setting.bytes < kLineBytes * threads) continue;
          CopySetting divided = setting;
          divided.divided = true;
          points.push_back(point_of(scope, divided, threads, rank + 1));
        }
      }
    }
  }
}

std::vector<Point> list_points(const Scope& scope) {
  const bool asked = scope.asks("from") || scope.asks("to");
  // Chosen before anything is timed: the race takes longer than a sample.
  if (scope.here) (void)chosen_copy_kernel();
  std::map<const Node*, std::vector<unsigned>> orders;
  std::vector<Point> points;
  for (const Node* from : memory_nodes(scope.machine)) {
    for (const Node* to : memory_nodes(scope.machine)) {
      // A machine of 16 nodes has 256 pairs, and a session requests few of them.
      Row pair;
      pair.parameters = {{"from", id_of(from)}, {"to", id_of(to)}};
      if (!scope.may_want(pair, kParameters)) continue;
      const Node* const cpu_node = host_of(scope.machine, *to);
      if (cpu_node == nullptr || usable_cpus(cpu_node).empty()) continue;
      std::vector<unsigned>& order = orders[cpu_node];
      if (order.empty()) order = spread_order(scope.machine, *cpu_node);
      add_pair(points, scope,
               {.cpu_node = cpu_node,
                .from = from,
                .to = to,
                .cpus = order,
                .bus = scope.bus_of({from->id, to->id})},
               asked || from == to);
    }
  }
  return points;
}

}  // namespace

Point copy_point(const Machine& machine, const CopySetting& setting, Row row, unsigned rank) {
  const auto area = area_for(machine, setting, row);
  if (!area) return without(std::move(row), "a node is too small for copies of this size");
  Point point;
  point.row = std::move(row);
  point.rank = rank;
  point.memory = {setting.to->id, PageSize::transparent};
  // Three samples, each with at least one copy.
  const auto ns = [](Bytes bytes, double per_ns) {
    return Nanoseconds{static_cast<std::int64_t>(static_cast<double>(bytes.value) / per_ns)};
  };
  point.cost = kCopyingTime + 3 * std::max(kCopyingTime, ns(setting.bytes, 4));
  point.setup = {.name = fmt::format("copied {} {}", raw(setting.from->id), area->value),
                 .cost = touching(*area * 2, usable_cpus(setting.cpu_node).size())};
  point.prepare = [setting, area = *area](BufferPool& buffers,
                                          Random&) -> Result<std::unique_ptr<Probe>> {
    HEADRACE_TRY(const CopyLoop loop, CopyLoop::find(setting.engine));
    HEADRACE_TRY(const auto to, buffers.get({setting.to->id, PageSize::transparent}, 0, area));
    HEADRACE_TRY(const auto from, buffers.get({setting.from->id, PageSize::transparent}, 1, area));
    return std::make_unique<Copying>(loop, setting, to, from);
  };
  return point;
}

const Experiment kExperiment{
    kName,       "copying by cores: engine, size, threads, nodes, cold and hot",
    kParameters, {},
    list_points, 3,
    true};

}  // namespace headrace::experiment_copy
