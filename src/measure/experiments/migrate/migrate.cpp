// SPDX-License-Identifier: Apache-2.0
// Moving pages to another node: the rate, and the stalls of a program that uses them meanwhile. The
// methods:
//
// - move_pages: the kernel moves listed pages, `batch` per call; addresses stay.
// - mbind: the kernel moves a whole range to a new policy (MPOL_MF_MOVE); addresses stay.
// - remap: a core copies to new pages, which then replace the old ones (mremap).
// - copy: a core copies to new pages at a new address, as a program does that can change its
//   pointers.
//
// Each is run by 1, 2, 4, ... all CPUs near the target, one thread on each, which share `bytes`
// evenly, as rows of `copy` with work=divided do. A batch of at least a thread's part is `all`.
// Calls for one process contend for its page tables and its memory map, so more CPUs need not be
// faster. The moved bytes are in no cache: after the CPUs near the target have written them, they
// read a buffer of four times their last-level caches.
//
// The value is the bytes on the target afterwards, divided by the time from the start of the first
// thread to the end of the last. Pages that stayed (`stayed`, in kernel pages) do not count; if all
// stayed, the row is an error. Each sample moves new pages. Details:
// - `per_page_ns`: per moved page.
// - `first_batch_ns`: time of the first batch; a program that waits for a page waits for its batch.
// - `copy_share`: time in which the same threads, right before, copy as many cold bytes to existing
//   pages of the same size, as a share of the move's time.
// - `rest_ns_per_page`: the rest of the move: allocation, page tables, unmapping, other CPUs' TLBs,
//   and how much slower the kernel's copy loop is than ours. Below 0: it is faster.
// - `cpu_s_per_gb`: CPU time of all movers in seconds per 10^9 moved bytes.
//
// The percentiles of single accesses (`stall_p99_ns` and so on) are those of an observer: another
// thread, if a CPU is left for it, which accesses random pages all the time. They are over all
// accesses due at its pace (stalls.h), so a wait counts by its length. The word `observer` names
// its CPU. While the kernel moves, the observer writes, and no write may be lost. remap and copy
// are not safe against writers, so there it only reads.
#include "measure/experiments/migrate/migrate.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "core/fail.h"
#include "headrace/buffer.h"
#include "headrace/placement.h"
#include "measure/experiments/migrate/migration.h"
#include "measure/experiments/teams.h"
#include "measure/instruments/worker_pool.h"
#include "measure/session/alike.h"
#include "memory/memory.h"

namespace headrace::experiment_migrate {

using namespace session;

namespace {

constexpr std::string_view kName = "migrate";
constexpr Parameter kParameters[] = {
    {"method", ParameterKind::word},
    {"cpu_node", ParameterKind::node, false},
    {"from", ParameterKind::node},
    {"to", ParameterKind::node},
    {"pages", ParameterKind::word},
    {"batch", ParameterKind::count_or_all},
    {"threads", ParameterKind::count, false},
    {"bytes", ParameterKind::count, false},
};
// Older versions did not separate copying from the rest.
constexpr std::string_view kDetails[] = {"per_page_ns", "first_batch_ns", "stayed"};

// Sizes that `copy` has too. The usual size grows if it would give each of many threads less than
// one huge page.
constexpr Bytes kUsualSize = 64_MiB;
constexpr Bytes kMostUsual = 1_GiB;
constexpr std::array kOtherSizes = {1_MiB, 4_MiB, 16_MiB, 256_MiB};
constexpr std::array<std::uint64_t, 5> kBatches = {1, 8, 64, 512, 4096};
constexpr std::uint64_t kUsualBatch = 512;  // as tiers move pages
constexpr Bytes kLeastSwept = 32_MiB;

Row migrate_row(const MigrateSetting& setting, NodeId cpu_node) {
  return make_row(
      kName, kParameters,
      {std::string(setting.method.name), std::uint64_t{raw(cpu_node)},
       std::uint64_t{raw(setting.from)}, std::uint64_t{raw(setting.to)},
       setting.page == base_page() ? "base" : "huge",
       setting.method.batch == 0 ? ParameterValue("all") : ParameterValue(setting.method.batch),
       std::uint64_t{setting.movers.size()}, setting.bytes.value},
      "B/s");
}

// Checks that the node has this much free memory before anything is bound to it: binding to a full
// node ends in the kernel's OOM killer.
Status check_space(const Machine& machine, NodeId node, Bytes bytes) {
  Placement placement = Placement::on(node);
  placement.touch = false;
  HEADRACE_TRY(const auto untouched, allocate(machine, bytes, placement));
  return {};
}

Nanoseconds at_rate(Bytes bytes, double per_ns) {
  return Nanoseconds{static_cast<std::int64_t>(static_cast<double>(bytes.value) / per_ns)};
}

// Three moves at 1 GB/s for each of up to four threads. Per move a copy and a pass over the swept
// memory at 4 GB/s for each of up to eight threads, and new pages. Pages are made twice at first.
Nanoseconds cost_of(const MigrateSetting& setting, Bytes swept) {
  const auto together = [](const CpuSet& cpus, std::size_t most) {
    return static_cast<double>(std::clamp<std::size_t>(cpus.size(), 1, most));
  };
  const Nanoseconds filling = touching(setting.bytes, setting.fillers.size());
  const Nanoseconds each = at_rate(setting.bytes, together(setting.movers, 4)) +
                           at_rate(setting.bytes, 4 * together(setting.movers, 8)) +
                           at_rate(swept, 4 * together(setting.fillers, 8)) + filling;
  return 3 * each + 2 * filling;
}

// Why pages cannot be divided like this; empty: they can.
std::string why_not(const MigrateSetting& setting, const Node& smaller) {
  if (setting.from == setting.to && setting.method.by_kernel) {
    return "there is one memory node: the kernel moves between nodes only";
  }
  if (setting.bytes.value % setting.page.value != 0 ||
      setting.bytes < setting.page * setting.movers.size()) {
    return fmt::format("{} are no whole pages of {} for each of {} threads",
                       to_string(setting.bytes), to_string(setting.page), setting.movers.size());
  }
  if (fitting(smaller, setting.bytes) < setting.bytes) return "a node is too small for this size";
  return "";
}

Point migrate_point(const Machine& machine, const MigrateSetting& setting, Row row,
                    const Node& smaller) {
  if (std::string why = why_not(setting, smaller); !why.empty()) {
    return without(std::move(row), std::move(why));
  }
  Point point;
  point.row = std::move(row);
  std::vector<unsigned> cpus = setting.movers;
  cpus.insert(cpus.end(), setting.observer.begin(), setting.observer.end());
  point.row.cpus = list_of_cpus(std::move(cpus));
  point.memory = {setting.from, PageSize::base};
  const Bytes swept =
      fit(point.row, *machine.find(setting.from),
          past_caches(point.row, machine, setting.fillers, kCachesPassed, kLeastSwept));
  for (const NodeId node : {setting.from, setting.to}) {
    mark_side_cached(point.row, *machine.find(node), setting.bytes);
  }
  point.cost = cost_of(setting, swept);
  point.setup = {.name = fmt::format("swept {}", swept.value),
                 .cost = touching(swept, setting.fillers.size())};
  point.prepare = [&machine, setting, swept](BufferPool& buffers,
                                             Random&) -> Result<std::unique_ptr<Probe>> {
    HEADRACE_TRY(const auto read, buffers.get({setting.from, PageSize::transparent}, 0, swept));
    // Two buffers on each node, and a third on the node of the moved pages.
    const std::uint64_t buffers_of_one = setting.from == setting.to ? 4 : 3;
    for (const NodeId node : {setting.from, setting.to}) {
      HEADRACE_TRY_STATUS(check_space(machine, node, setting.bytes * buffers_of_one));
    }
    return prepare_migration(setting, read);
  };
  return point;
}

// The CPUs that can move pages between two nodes, and those that can observe it.
struct Candidates {
  const Node* node = nullptr;       // of the movers
  std::vector<unsigned> movers;     // in the order of threads; empty: no CPU near the target
  std::vector<unsigned> observers;  // nearest to the source first; includes movers
};

Candidates candidates_between(const Machine& machine, const Node& from, const Node& to) {
  Candidates found{.node = host_of(machine, to)};
  if (found.node == nullptr || usable_cpus(found.node).empty()) return found;
  found.movers = spread_order(machine, *found.node);
  found.observers = usable_cpus(host_of(machine, from));
  std::ranges::copy(usable_cpus(), std::back_inserter(found.observers));
  return found;
}

// Chooses the movers, and an observer that is not one of them and if possible shares no core with
// one. No observer if control groups allow no further thread.
void choose_cpus(const Scope& scope, MigrateSetting& setting, const Candidates& candidates,
                 std::size_t threads) {
  setting.movers = first_of(candidates.movers, threads);
  setting.observer.clear();
  if (scope.most_threads && threads >= *scope.most_threads) return;
  const auto is_mover = [&](unsigned cpu) {
    return std::ranges::find(setting.movers, cpu) != setting.movers.end();
  };
  const auto shares = [&](unsigned cpu) {
    return std::ranges::any_of(
        setting.movers, [&](unsigned mover) { return share_core(scope.machine, cpu, mover); });
  };
  for (const bool together : {false, true}) {
    for (const unsigned cpu : candidates.observers) {
      if (setting.observer.empty() && !is_mover(cpu) && shares(cpu) == together)
        setting.observer = {cpu};
    }
  }
}

// The methods for this many pages, of which a thread has at most `part`, without duplicates.
std::vector<Method> methods(std::uint64_t part) {
  std::vector<Method> all;
  for (const std::uint64_t batch : kBatches) {
    if (batch < part) all.push_back({.name = "move_pages", .batch = batch, .by_kernel = true});
  }
  all.push_back({.name = "move_pages", .by_kernel = true});
  all.push_back({.name = "mbind", .by_kernel = true});
  all.push_back({.name = "remap"});
  all.push_back({.name = "copy"});
  return all;
}

// Source, target and CPUs of a move.
struct Way {
  const Node& from;
  const Node& to;
  Candidates cpus;
  unsigned rank = 0;  // 2: between near memories

  const Node& smaller() const { return *from.capacity < *to.capacity ? from : to; }
};

class Lister {
 public:
  explicit Lister(const Scope& scope) : scope_(scope) {
    for (const std::uint64_t bytes : scope.numbers("bytes")) asked_.push_back(Bytes{bytes});
    all_ = !asked_.empty() || scope.asks("from") || scope.asks("to") || scope.asks("batch") ||
           scope.asks("threads");
  }

  void add(const Way& way) {
    if (way.cpus.movers.empty()) {
      const std::uint64_t ends[] = {raw(way.from.id), raw(way.to.id)};
      points_.push_back(without({.experiment = std::string(kName),
                                 .parameters = {{"from", ends[0]}, {"to", ends[1]}},
                                 .unit = "B/s"},
                                "this process has no CPU near the target"));
    }
    const bool near = way.rank == 2;
    const std::size_t most = way.cpus.movers.size();
    for (const std::size_t threads : thread_counts(most)) {
      const bool between = threads > 1 && threads < most;
      if (between && !near && !all_) continue;
      MigrateSetting setting{.from = way.from.id, .to = way.to.id, .fillers = way.cpus.movers};
      choose_cpus(scope_, setting, way.cpus, threads);
      for (const Bytes page : {base_page(), huge_page()}) {
        setting.page = page;
        for (const Bytes bytes : sizes(way, page * threads)) {
          add_methods(way, setting, bytes, between);
        }
      }
    }
  }

  std::vector<Point> points() { return std::move(points_); }

 private:
  // The usual size, or as much as a small node holds; between near memories also others. `least`:
  // one page per thread.
  std::vector<Bytes> sizes(const Way& way, Bytes least) const {
    if (!asked_.empty()) return asked_;
    std::vector<Bytes> all{usual(way, least)};
    for (const Bytes size : kOtherSizes) {
      if (way.rank == 2 && size >= least && fitting(way.smaller(), size) == size &&
          size != all.front()) {
        all.push_back(size);
      }
    }
    return all;
  }

  static Bytes usual(const Way& way, Bytes least) {
    Bytes wanted = kUsualSize;
    while (wanted < least && wanted < kMostUsual) wanted = wanted * 4;
    return fitting(way.smaller(), wanted);
  }

  void add_methods(const Way& way, MigrateSetting setting, Bytes bytes, bool between) {
    setting.bytes = bytes;
    const std::size_t threads = setting.movers.size();
    const std::uint64_t part = (bytes / setting.page + threads - 1) / threads;
    const bool is_usual = bytes == usual(way, setting.page * threads);
    for (const Method& method : methods(part)) {
      const bool telling = method.batch == 0 || method.batch == kUsualBatch;
      // Curves over sizes and numbers of threads have one method of the kernel, and copying.
      const bool line = telling && method.name != "mbind" && method.name != "remap";
      const bool other = (between || !is_usual) && !(line && (is_usual || method.batch == 0));
      if (!all_ && (other || (way.rank != 2 && !telling))) continue;
      setting.method = method;
      points_.push_back(migrate_point(scope_.machine, setting,
                                      migrate_row(setting, way.cpus.node->id), way.smaller()));
      if (bytes < kUsualSize && is_usual && asked_.empty()) points_.back().row.add_flag("shrunk");
      points_.back().rank = rank_of(way, setting, is_usual, part);
    }
  }

  // First the method of tiers between near memories; then all threads, and the rest.
  static unsigned rank_of(const Way& way, const MigrateSetting& setting, bool is_usual,
                          std::uint64_t part) {
    const std::size_t threads = setting.movers.size();
    const Method& method = setting.method;
    const bool in_batches =
        method.name == "move_pages" && method.batch == (part > kUsualBatch ? kUsualBatch : 0);
    const unsigned others = threads == 1 ? 0 : threads == way.cpus.movers.size() ? 1 : 2;
    if (way.rank == 2 && threads == 1 && is_usual && in_batches) return 1;
    return way.rank + others + (is_usual ? 0 : 1);
  }

  const Scope& scope_;
  std::vector<Bytes> asked_;  // of `bytes`
  bool all_ = false;          // all points, not only the usual ones
  std::vector<Point> points_;
};

std::vector<Point> list_points(const Scope& scope) {
  const std::vector<const Node*> nodes = memory_nodes(scope.machine);
  Lister lister(scope);
  for (const Node* from : nodes) {
    for (const Node* to : nodes) {
      if (from == to && nodes.size() > 1) continue;
      const bool near = distance_of(scope.machine, *from, *to) == "near";
      lister.add({.from = *from,
                  .to = *to,
                  .cpus = candidates_between(scope.machine, *from, *to),
                  .rank = near                     ? 2U
                          : to->kind != from->kind ? 3U
                                                   : 4U});
    }
  }
  return lister.points();
}

}  // namespace

const Experiment kExperiment{
    kName,       "moving pages between nodes, and what a running program feels of it",
    kParameters, kDetails,
    list_points, 2,
    true};

}  // namespace headrace::experiment_migrate
