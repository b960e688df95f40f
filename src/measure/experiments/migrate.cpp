// Moving pages to another node: how fast, and what a program that uses them meanwhile feels.
//
//   move_pages  the kernel moves pages it is given, `batch` per call; addresses stay
//   mbind       the kernel moves a whole range to a new policy (MPOL_MF_MOVE); addresses stay
//   remap       copied by a core to new pages, which then take the place of the old ones (mremap)
//   copy        copied by a core to new pages at a new address: what a program does that can change
//               its pointers, and the bound for the others
//
// Each by 1, 2, 4, ... all CPUs near the target, one thread on each, which share the pages evenly:
// calls for one process contend for its page tables and its memory map, so that more CPUs need not
// be faster.
//
// The value is the bytes of the whole region over the time from the first thread's start to the
// last one's end. Details: the time per page, the time of the first batch (a program that waits for
// one page waits for its batch), the pages that stayed, and percentiles of the time of single
// accesses by an observer: another thread, where a CPU is left for it, which accesses random pages
// of the region all the while. Where the kernel moves, the observer writes, and no write may be
// lost; remap and copy are not safe against writers, so there it only reads. Each sample moves the
// region to the target; moving it back is not timed.
#include <linux/mman.h>  // MADV_COLLAPSE, which the C library has since 2.37
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>

#include "core/fail.h"
#include "headrace/buffer.h"
#include "headrace/clock.h"
#include "headrace/copy.h"
#include "headrace/histogram.h"
#include "headrace/placement.h"
#include "measure/experiments/experiments.h"
#include "measure/instruments/cpu_share.h"
#include "measure/instruments/ticks.h"
#include "measure/instruments/worker_pool.h"
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
};

constexpr Bytes kRegion = 32_MiB;
constexpr std::uint64_t kBasePage = 4096;
constexpr std::uint64_t kHugePage = 2 << 20;
constexpr std::array<std::uint64_t, 3> kBatches = {1, 64, 512};

struct Method {
  std::string_view name;
  std::uint64_t batch = 0;  // pages per call; 0: all at once
  bool by_kernel = false;
};

// Consecutive pages of the region: what one thread moves.
struct Part {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
};

Part part_of(std::uint64_t pages, std::size_t i, std::size_t parts) {
  const std::uint64_t first = pages * i / parts;
  return {first, pages * (i + 1) / parts - first};
}

// Anonymous pages, mapped for the measurement alone and aligned for huge ones.
class Region {
 public:
  // Pages of `page` bytes, bound to `node` if it is given.
  static Result<std::unique_ptr<Region>> make(std::optional<NodeId> node, Bytes bytes,
                                              std::uint64_t page) {
    void* memory = mmap(nullptr, bytes.value + kHugePage, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return fail_errno(errno, "no memory for the pages to move");
    std::unique_ptr<Region> region(new Region(memory, bytes, page));
    madvise(region->bytes_.data(), bytes.value,
            page == kHugePage ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    if (node) HEADRACE_TRY_STATUS(region->bind(*node));
    return region;
  }
  ~Region() { munmap(mapped_, bytes_.size() + kHugePage); }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  std::span<std::byte> bytes() const { return bytes_; }
  std::uint64_t page() const { return page_; }

  std::span<std::byte> bytes(Part part) const {
    return bytes_.subspan(part.first * page_, part.count * page_);
  }

  // Asks the kernel to put huge pages together again that it took apart. False: some are still
  // not huge.
  bool make_huge() {
    if (BufferPool::huge_part(bytes_) < 1) madvise(bytes_.data(), bytes_.size(), MADV_COLLAPSE);
    return BufferPool::huge_part(bytes_) >= 1;
  }

  // Moves all pages to `node` and binds those to come to it.
  Status bind(NodeId node) { return bind_pages(bytes_, node); }

  Status move(Part part, NodeId node) {
    std::vector<void*> addresses;
    addresses.reserve(part.count);
    std::byte* const begin = bytes(part).data();
    for (std::uint64_t i = 0; i < part.count; ++i) addresses.push_back(begin + i * page_);
    HEADRACE_TRY_STATUS(move_pages_to(addresses, node));
    return {};
  }

 private:
  Region(void* mapped, Bytes bytes, std::uint64_t page) : mapped_(mapped), page_(page) {
    const auto address = reinterpret_cast<std::uintptr_t>(mapped);
    auto* const begin = static_cast<std::byte*>(mapped) + (kHugePage - address % kHugePage);
    bytes_ = {begin, bytes.value};
  }

  void* const mapped_;
  std::span<std::byte> bytes_;
  const std::uint64_t page_;
};

struct MigrateSetting {
  Method method;
  NodeId from{0};
  NodeId to{0};
  std::uint64_t page = kBasePage;
  Bytes bytes;
  CpuSet movers;    // one thread on each moves its part
  CpuSet observer;  // one CPU, or none where none is left

  // The nodes to bind pages to; nothing where there is only one memory node: no binding is needed
  // there, and containers may forbid it.
  std::optional<NodeId> source() const { return from == to ? std::nullopt : std::optional(from); }
  std::optional<NodeId> target() const { return from == to ? std::nullopt : std::optional(to); }
};

class Migration final : public Probe {
 public:
  Migration(MigrateSetting setting, std::unique_ptr<Region> region)
      : setting_(std::move(setting)), region_(std::move(region)) {}

  Result<Sample> sample() override {
    HEADRACE_TRY_STATUS(reset());
    const std::size_t movers = setting_.movers.size();
    std::vector<Moved> moved(movers);
    fresh_.clear();
    fresh_.resize(movers);
    std::atomic<std::size_t> moving{movers};
    CpuSet cpus = setting_.movers;
    cpus.insert(cpus.end(), setting_.observer.begin(), setting_.observer.end());
    // A thread that waits for a moving page or for another mover is off its CPU, so a share of CPU
    // time shows other programs only where there is a single mover.
    HEADRACE_TRY_STATUS(run_together(cpus, [&](std::size_t i) {
      if (i == movers) return observe(moving);
      const CpuShare own;
      moved[i] = move(i);
      moved[i].share = movers == 1 ? own.now() : 1;
      --moving;
    }));
    for (const Moved& each : moved) HEADRACE_TRY_STATUS(each.status);
    return sample_of(moved);
  }

 private:
  // What one mover did.
  struct Moved {
    Status status;
    Nanoseconds begin{0};
    Nanoseconds first{0};  // the end of its first batch
    Nanoseconds end{0};
    double share = 1;  // the part of its time it was on its CPU
  };

  std::uint64_t pages() const { return region_->bytes().size() / setting_.page; }

  static Result<std::uint64_t> pages_not_on(NodeId node, std::span<const std::byte> bytes) {
    HEADRACE_TRY(const Residency residency, where(bytes));
    const auto there = residency.pages.find(node);
    return residency.total() - (there == residency.pages.end() ? 0 : there->second);
  }

  // Fills the region, on the source node and in pages of the right size.
  Status reset() {
    if (setting_.source()) HEADRACE_TRY_STATUS(region_->bind(*setting_.source()));
    std::memset(region_->bytes().data(), 1, region_->bytes().size());
    if (setting_.page == kHugePage && !region_->make_huge()) {
      return fail(ErrorCode::exhausted, "the kernel gave no huge pages; see transparent_hugepage");
    }
    HEADRACE_TRY(const std::uint64_t elsewhere, pages_not_on(setting_.from, region_->bytes()));
    if (elsewhere > 0) {
      return fail(ErrorCode::exhausted, "{} pages could not be put on node {}; free memory there",
                  elsewhere, raw(setting_.from));
    }
    written_ = 0;
    stalls_.clear();
    return {};
  }

  Moved move(std::size_t mover) {
    const Part part = part_of(pages(), mover, setting_.movers.size());
    Moved result;
    result.begin = system_clock().now();
    if (setting_.method.name == "move_pages") {
      result.status = move_in_batches(part, result);
    } else if (setting_.method.name == "mbind") {
      result.status = bind_pages(region_->bytes(part), setting_.to);
    } else {
      result.status = move_by_copy(part, fresh_[mover]);
    }
    result.end = system_clock().now();
    if (result.first == Nanoseconds{0}) result.first = result.end;
    return result;
  }

  Status move_in_batches(Part part, Moved& result) {
    for (std::uint64_t done = 0; done < part.count; done += setting_.method.batch) {
      const Part batch{part.first + done, std::min(setting_.method.batch, part.count - done)};
      HEADRACE_TRY_STATUS(region_->move(batch, setting_.to));
      if (done == 0) result.first = system_clock().now();
    }
    return {};
  }

  // Copies the part to new pages on the target; for `remap` these take the place of the old ones.
  // Allocating them is timed, as it is when the kernel moves; freeing them is not.
  Status move_by_copy(Part part, std::unique_ptr<Region>& fresh) {
    HEADRACE_TRY(fresh,
                 Region::make(setting_.target(), Bytes{part.count * setting_.page}, setting_.page));
    const std::span<std::byte> old = region_->bytes(part);
    copy_bytes(fresh->bytes().data(), old.data(), old.size());
    if (setting_.method.name != "remap") return {};
    // MREMAP_DONTUNMAP keeps the addresses that the new pages had mapped: else another mapping
    // could take them, which `fresh` would then unmap.
    constexpr int kFlags = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
    if (mremap(fresh->bytes().data(), old.size(), old.size(), kFlags, old.data()) == MAP_FAILED) {
      return fail_errno(errno, "cannot remap the copied pages");
    }
    return {};
  }

  // Accesses the first word of random pages while movers are at work: increments it where the
  // kernel moves, else only reads it. Records how long each access takes.
  void observe(const std::atomic<std::size_t>& moving) {
    const Ticks& ticks = Ticks::instance();
    Random random(1);
    while (moving > 0) {
      const std::uint64_t page = random.below(pages());
      auto* word =
          reinterpret_cast<volatile std::uint64_t*>(region_->bytes().data() + page * setting_.page);
      const std::uint64_t begin = ticks.now();
      const std::uint64_t value = *word;
      if (setting_.method.by_kernel) {
        *word = value + 1;
        ++written_;
      }
      stalls_.record(static_cast<std::uint64_t>(ticks.nanoseconds(ticks.now() - begin)));
    }
  }

  // The bytes after the move, part by part.
  std::vector<std::span<std::byte>> moved_bytes() const {
    if (setting_.method.name != "copy") return {region_->bytes()};
    std::vector<std::span<std::byte>> parts;
    for (const auto& fresh : fresh_) parts.push_back(fresh->bytes());
    return parts;
  }

  // Checks that every byte is as it was and no write of the observer is lost.
  Status check(const std::vector<std::span<std::byte>>& parts) const {
    constexpr std::uint64_t kOnes = 0x0101010101010101;
    std::uint64_t counted = 0;
    bool same = true;
    for (const std::span<std::byte> part : parts) {
      for (std::uint64_t offset = 0; offset < part.size(); offset += setting_.page) {
        const std::byte* at = part.data() + offset;
        std::uint64_t word = 0;
        std::memcpy(&word, at, sizeof word);
        counted += word - kOnes;
        // Equal to itself shifted by one byte, so all bytes behind the word are the same.
        same = same && at[8] == std::byte{1} && std::memcmp(at + 8, at + 9, setting_.page - 9) == 0;
      }
    }
    if (same && counted == written_) return {};
    return fail(ErrorCode::io, "moving pages lost {}; report it, this must not happen",
                same ? "a write" : "bytes");
  }

  Result<Sample> sample_of(const std::vector<Moved>& moved) const {
    const std::vector<std::span<std::byte>> parts = moved_bytes();
    HEADRACE_TRY_STATUS(check(parts));
    const Nanoseconds begin = std::ranges::min(moved, {}, &Moved::begin).begin;
    const Nanoseconds time = std::ranges::max(moved, {}, &Moved::end).end - begin;
    const Nanoseconds first = std::ranges::min(moved, {}, &Moved::first).first - begin;
    std::uint64_t stayed = 0;
    double huge = 0;  // bytes; the kernel takes huge pages apart where the target has none free
    for (const std::span<std::byte> part : parts) {
      HEADRACE_TRY(const std::uint64_t elsewhere, pages_not_on(setting_.to, part));
      stayed += elsewhere;
      huge += BufferPool::huge_part(part) * static_cast<double>(part.size());
    }
    Sample sample{.value = (setting_.bytes / time).value,
                  .details = {{"per_page_ns",
                               static_cast<double>(time.count()) / static_cast<double>(pages())},
                              {"first_batch_ns", static_cast<double>(first.count())},
                              {"stayed", static_cast<double>(stayed)}},
                  .cpu_share = moved.front().share};
    if (setting_.page == kHugePage) {
      sample.details["still_huge"] = huge / static_cast<double>(setting_.bytes.value);
    }
    for (const auto& [name, q] : {std::pair{"stall_p50_ns", 0.5},
                                  {"stall_p99_ns", 0.99},
                                  {"stall_p999_ns", 0.999},
                                  {"stall_max_ns", 1.0}}) {
      if (const auto stall = stalls_.quantile(q)) {
        sample.details[name] = static_cast<double>(*stall);
      }
    }
    return sample;
  }

  const MigrateSetting setting_;
  std::unique_ptr<Region> region_;
  std::vector<std::unique_ptr<Region>> fresh_;  // [mover] its new pages, where it copies
  std::uint64_t written_ = 0;                   // by observe(), read after it has ended
  Histogram stalls_;
};

Row migrate_row(const MigrateSetting& setting, NodeId cpu_node) {
  return make_row(
      kName, kParameters,
      {std::string(setting.method.name), std::uint64_t{raw(cpu_node)},
       std::uint64_t{raw(setting.from)}, std::uint64_t{raw(setting.to)},
       setting.page == kHugePage ? "huge" : "base",
       setting.method.batch == 0 ? ParameterValue("all") : ParameterValue(setting.method.batch),
       std::uint64_t{setting.movers.size()}},
      "B/s");
}

// Checks that the node has so much free memory, before anything is bound to it: binding to a full
// node ends in the kernel's out-of-memory killer.
Status check_space(const Machine& machine, NodeId node, Bytes bytes) {
  Placement placement = Placement::on(node);
  placement.touch = false;
  HEADRACE_TRY(const auto untouched, allocate(machine, bytes, placement));
  return {};
}

Point migrate_point(const Machine& machine, const MigrateSetting& setting, Row row,
                    const Node& smaller) {
  if (setting.from == setting.to && setting.method.by_kernel) {
    return without(std::move(row), "there is one memory node: the kernel moves between nodes only");
  }
  Point point;
  point.row = std::move(row);
  point.row.cpus = list_of_cpus({setting.movers.begin(), setting.movers.end()});
  point.memory = {setting.from, PageSize::base};
  MigrateSetting sized = setting;
  sized.bytes = fit(point.row, smaller, kRegion);
  if (sized.bytes.value < setting.page * setting.movers.size()) {
    return without(std::move(point.row), "too few pages fit on a node");
  }
  // Estimated at 1 GB/s with small pages: there and back, three times, and filling.
  point.cost = Nanoseconds{static_cast<std::int64_t>(sized.bytes.value) * 8};
  point.prepare = [&machine, sized](BufferPool&, Random&) -> Result<std::unique_ptr<Probe>> {
    for (const NodeId node : {sized.from, sized.to}) {
      HEADRACE_TRY_STATUS(check_space(machine, node, sized.bytes));
    }
    HEADRACE_TRY(auto region, Region::make(sized.source(), sized.bytes, sized.page));
    return std::make_unique<Migration>(sized, std::move(region));
  };
  return point;
}

std::vector<Method> methods() {
  std::vector<Method> all;
  for (const std::uint64_t batch : kBatches) {
    all.push_back({.name = "move_pages", .batch = batch, .by_kernel = true});
  }
  all.push_back({.name = "mbind", .by_kernel = true});
  all.push_back({.name = "remap"});
  all.push_back({.name = "copy"});
  return all;
}

// The CPUs that can move pages between two nodes, and those that can observe it.
struct Candidates {
  const Node* node = nullptr;  // that of the movers
  CpuSet movers;               // all there can be; none: no CPU near the target
  CpuSet observers;            // nearest to the source first; movers among them
};

Candidates candidates_between(const Machine& machine, const Node& from, const Node& to) {
  Candidates found{.node = host_of(machine, to)};
  if (found.node == nullptr) return found;
  found.movers = usable_cpus(found.node);
  found.observers = usable_cpus(host_of(machine, from));
  std::ranges::copy(usable_cpus(), std::back_inserter(found.observers));
  return found;
}

// Chooses so many movers, and an observer that is none of them and shares no core with one if
// possible.
void choose_cpus(const Machine& machine, MigrateSetting& setting, const Candidates& candidates,
                 std::size_t threads) {
  const CpuSet& movers = candidates.movers;
  setting.movers.assign(movers.begin(), movers.begin() + std::ptrdiff_t(threads));
  const auto is_mover = [&](unsigned cpu) {
    return std::ranges::find(setting.movers, cpu) != setting.movers.end();
  };
  const auto shares = [&](unsigned cpu) {
    return std::ranges::any_of(setting.movers,
                               [&](unsigned mover) { return share_core(machine, cpu, mover); });
  };
  for (const bool together : {false, true}) {
    for (const unsigned cpu : candidates.observers) {
      if (setting.observer.empty() && !is_mover(cpu) && shares(cpu) == together)
        setting.observer = {cpu};
    }
  }
}

// What is added to a point's rank for its threads: one is measured first, then all, then the rest.
unsigned rank_of_threads(std::size_t threads, std::size_t all) {
  if (threads == 1) return 0;
  return threads == all ? 1 : 2;
}

std::vector<Point> list_points(const Scope& scope) {
  const std::vector<const Node*> nodes = memory_nodes(scope.machine);
  std::vector<Point> points;
  const auto add = [&](const Node& from, const Node& to, unsigned rank) {
    const Candidates cpus = candidates_between(scope.machine, from, to);
    if (cpus.movers.empty()) {
      const std::uint64_t ends[] = {raw(from.id), raw(to.id)};
      points.push_back(without({.experiment = std::string(kName),
                                .parameters = {{"from", ends[0]}, {"to", ends[1]}},
                                .unit = "B/s"},
                               "this process has no CPU near the target"));
    }
    for (const std::size_t threads : thread_counts(cpus.movers.size())) {
      MigrateSetting setting{.from = from.id, .to = to.id};
      choose_cpus(scope.machine, setting, cpus, threads);
      for (const Method& method : methods()) {
        for (const std::uint64_t page : {kBasePage, kHugePage}) {
          setting.method = method;
          setting.page = page;
          const Node& smaller = *from.capacity < *to.capacity ? from : to;
          points.push_back(
              migrate_point(scope.machine, setting, migrate_row(setting, cpus.node->id), smaller));
          // As tiers move pages, between memories near each other first.
          const bool first = rank == 2 && threads == 1 && method.batch == kBatches.back();
          points.back().rank = first ? 1 : rank + rank_of_threads(threads, cpus.movers.size());
        }
      }
    }
  };
  for (const Node* from : nodes) {
    const auto near = one_of_each_kind(scope.machine, *from);
    for (const Node* to : nodes) {
      if (from == to && nodes.size() > 1) continue;
      const bool nearest = std::ranges::find(near, to) != near.end();
      add(*from, *to, nearest ? 2 : to->kind != from->kind ? 3 : 4);
    }
  }
  return points;
}

}  // namespace

const Experiment kExperiment{
    kName,       "moving pages between nodes, and what a running program feels of it",
    kParameters, {},
    list_points, 2,
    true};

}  // namespace headrace::experiment_migrate
