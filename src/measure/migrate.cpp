// Moving pages to another node: how fast, and what a program that uses them meanwhile feels.
//
//   move_pages  the kernel moves pages it is given, `batch` per call; addresses stay
//   mbind       the kernel moves a whole range to a new policy (MPOL_MF_MOVE); addresses stay
//   remap       copied by a core to new pages, which then take the place of the old ones (mremap)
//   copy        copied by a core to new pages at a new address: what a program does that can change
//               its pointers, and the bound for the others
//
// The value is the whole region over the whole time. Details: the time per page and of the first
// batch (a program that waits for one page waits for its batch), the pages that stayed, and the
// percentiles of single accesses by another thread to random pages of the region from before to
// after. Where the kernel moves, that thread writes, and no write may be lost; remap and copy are
// not safe against writers, so it only reads there. Each sample moves there; moving back is not
// timed.
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "backend/linux/linux.h"
#include "core/fail.h"
#include "headrace/buffer.h"
#include "headrace/clock.h"
#include "headrace/copy.h"
#include "headrace/histogram.h"
#include "headrace/placement.h"
#include "measure/experiment.h"
#include "measure/team.h"
#include "measure/ticks.h"

namespace headrace {
namespace {

constexpr Bytes kRegion = 32_MiB;
constexpr std::uint64_t kBasePage = 4096;
constexpr std::uint64_t kHugePage = 2 << 20;
constexpr std::array<std::uint64_t, 3> kBatches = {1, 64, 512};

struct Method {
  std::string_view name;
  std::uint64_t batch = 0;  // pages per call; 0: all at once
  bool by_kernel = false;
};

// Anonymous pages of our own, aligned for huge ones.
class Region {
 public:
  static Result<std::unique_ptr<Region>> make(NodeId node, Bytes bytes, std::uint64_t page) {
    void* memory = mmap(nullptr, bytes.value + kHugePage, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return fail_errno(errno, "no memory for the pages to move");
    std::unique_ptr<Region> region(new Region(memory, bytes, page));
    madvise(region->bytes_.data(), bytes.value,
            page == kHugePage ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    HEADRACE_TRY_STATUS(region->bind(node));
    return region;
  }
  ~Region() { munmap(mapped_, bytes_.size() + kHugePage); }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  std::span<std::byte> bytes() const { return bytes_; }
  std::uint64_t page() const { return page_; }

  // All pages to `node`, and those to come.
  Status bind(NodeId node) { return bind_pages(bytes_, node); }

  // Moves the pages from the `first`-th on; how many stayed where they were.
  Result<std::uint64_t> move(std::uint64_t first, std::uint64_t count, NodeId node) {
    std::vector<void*> addresses(count);
    for (std::uint64_t i = 0; i < count; ++i) addresses[i] = bytes_.data() + (first + i) * page_;
    return move_pages_to(addresses, node);
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

struct Job {
  Method method;
  NodeId from{0};
  NodeId to{0};
  std::uint64_t page = kBasePage;
  Bytes bytes;
  CpuSet cpus;  // of the mover, and of the one who touches if there is a second
};

class Migration final : public Probe {
 public:
  Migration(Job job, std::unique_ptr<Region> region)
      : job_(std::move(job)), region_(std::move(region)) {}

  Result<Sample> sample() override {
    HEADRACE_TRY_STATUS(go_home());
    Status moved;
    Moved result;
    std::atomic<bool> done{false};
    HEADRACE_TRY(const double share, run_together(job_.cpus, [&](std::size_t i) {
                   if (i == 1) return touch(done);
                   moved = move(result);
                   done = true;
                 }));
    HEADRACE_TRY_STATUS(moved);
    HEADRACE_TRY_STATUS(check());
    if (job_.method.name == "mbind") {
      HEADRACE_TRY(result.stayed, pages_not_on(job_.to));
    }
    return sample_of(result, share);
  }

 private:
  struct Moved {
    Nanoseconds time{0};
    Nanoseconds first{0};
    std::uint64_t stayed = 0;
  };

  std::uint64_t pages() const { return region_->bytes().size() / job_.page; }

  Result<std::uint64_t> pages_not_on(NodeId node) const {
    HEADRACE_TRY(const Residency residency, where(region_->bytes()));
    const auto there = residency.pages.find(node);
    return residency.total() - (there == residency.pages.end() ? 0 : there->second);
  }

  Status go_home() {
    if (job_.from != job_.to) HEADRACE_TRY_STATUS(region_->bind(job_.from));
    std::memset(region_->bytes().data(), 1, region_->bytes().size());
    HEADRACE_TRY(const std::uint64_t elsewhere, pages_not_on(job_.from));
    if (elsewhere > 0) {
      return fail(ErrorCode::exhausted, "{} pages could not be put on node {}; free memory there",
                  elsewhere, raw(job_.from));
    }
    if (job_.page == kHugePage && Arenas::huge_part(region_->bytes()) < 1) {
      return fail(ErrorCode::exhausted, "the kernel gave no huge pages; see transparent_hugepage");
    }
    written_ = 0;
    stalls_.clear();
    return {};
  }

  Status move(Moved& result) {
    const Nanoseconds begin = system_clock().now();
    Status status;
    if (job_.method.name == "move_pages") {
      status = move_in_batches(result, begin);
    } else if (job_.method.name == "mbind") {
      status = region_->bind(job_.to);
    } else {
      status = move_by_copy();
    }
    result.time = system_clock().now() - begin;
    if (result.first == Nanoseconds{0}) result.first = result.time;
    return status;
  }

  Status move_in_batches(Moved& result, Nanoseconds begin) {
    for (std::uint64_t at = 0; at < pages(); at += job_.method.batch) {
      const std::uint64_t count = std::min(job_.method.batch, pages() - at);
      HEADRACE_TRY(const std::uint64_t stayed, region_->move(at, count, job_.to));
      result.stayed += stayed;
      if (at == 0) result.first = system_clock().now() - begin;
    }
    return {};
  }

  // To new pages of the target, whose allocation is part of it, as it is when the kernel moves; for
  // `remap` they become the region's.
  Status move_by_copy() {
    HEADRACE_TRY(auto fresh, Region::make(job_.to, job_.bytes, job_.page));
    const std::span<std::byte> old = region_->bytes();
    copy_bytes(fresh->bytes().data(), old.data(), old.size());
    if (job_.method.name != "remap") return {};
    // The old place of the new pages stays mapped, so that nobody else's mapping comes to lie in
    // what `fresh` will unmap.
    constexpr int kFlags = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
    if (mremap(fresh->bytes().data(), old.size(), old.size(), kFlags, old.data()) == MAP_FAILED) {
      return fail_errno(errno, "cannot remap the copied pages");
    }
    return {};
  }

  // The first word of random pages, until it is over: counted up, or only read.
  void touch(const std::atomic<bool>& done) {
    const Ticks& ticks = Ticks::instance();
    Random random(1);
    while (!done) {
      const std::uint64_t page = random.below(pages());
      auto* word =
          reinterpret_cast<volatile std::uint64_t*>(region_->bytes().data() + page * job_.page);
      const std::uint64_t begin = ticks.now();
      const std::uint64_t value = *word;
      if (job_.method.by_kernel) {
        *word = value + 1;
        ++written_;
      }
      stalls_.record(static_cast<std::uint64_t>(ticks.nanoseconds(ticks.now() - begin)));
    }
  }

  // Every byte as it was, and every write of the other thread there.
  Status check() const {
    constexpr std::uint64_t kOnes = 0x0101010101010101;
    std::uint64_t counted = 0;
    bool same = true;
    for (std::uint64_t page = 0; page < pages(); ++page) {
      const std::byte* at = region_->bytes().data() + page * job_.page;
      std::uint64_t word = 0;
      std::memcpy(&word, at, sizeof word);
      counted += word - kOnes;
      // Equal to itself shifted by one byte: all bytes behind the word are the same.
      same = same && at[8] == std::byte{1} && std::memcmp(at + 8, at + 9, job_.page - 9) == 0;
    }
    if (same && counted == written_) return {};
    return fail(ErrorCode::io, "moving pages lost {}; report it, this must not happen",
                same ? "a write" : "bytes");
  }

  Sample sample_of(const Moved& result, double share) const {
    Sample sample{.value = (job_.bytes / result.time).value,
                  .details = {{"per_page_ns", static_cast<double>(result.time.count()) /
                                                  static_cast<double>(pages())},
                              {"first_batch_ns", static_cast<double>(result.first.count())},
                              {"stayed", static_cast<double>(result.stayed)}},
                  .cpu_share = share};
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

  const Job job_;
  std::unique_ptr<Region> region_;
  std::uint64_t written_ = 0;  // by touch(), read after it has ended
  Histogram stalls_;
};

Row migrate_row(const Job& job) {
  return {.experiment = "migrate",
          .parameters = {{"method", std::string(job.method.name)},
                         {"from", std::uint64_t{raw(job.from)}},
                         {"to", std::uint64_t{raw(job.to)}},
                         {"pages", job.page == kHugePage ? "huge" : "base"},
                         {"batch", job.method.batch == 0 ? ParameterValue("all")
                                                         : ParameterValue(job.method.batch)}},
          .unit = "B/s"};
}

// Asked before anything is bound to the node: a strict policy on a full one ends in the kernel's
// out-of-memory killer.
Status check_room(const Machine& machine, NodeId node, Bytes bytes) {
  Placement placement = Placement::on(node);
  placement.touch = false;
  HEADRACE_TRY(const auto room, allocate(machine, bytes, placement));
  return {};
}

Point migrate_point(const Machine& machine, const Job& job, const Node& smaller, unsigned rank) {
  Row row = migrate_row(job);
  if (job.from == job.to && job.method.by_kernel) {
    return without(std::move(row), "there is one memory node: the kernel moves between nodes only");
  }
  Point point;
  point.row = std::move(row);
  point.rank = rank;
  point.memory = {job.from, PageSize::base};
  Job sized = job;
  sized.bytes = fit(point.row, smaller, kRegion);
  if (sized.bytes.value < job.page) return without(std::move(point.row), "a node is too small");
  // About 1 GB/s with small pages, there and back, three times, and filling.
  point.cost = Nanoseconds{static_cast<std::int64_t>(sized.bytes.value) * 8};
  point.prepare = [&machine, sized](Arenas&, Random&) -> Result<std::unique_ptr<Probe>> {
    for (const NodeId node : {sized.from, sized.to}) {
      HEADRACE_TRY_STATUS(check_room(machine, node, sized.bytes));
    }
    HEADRACE_TRY(auto region, Region::make(sized.from, sized.bytes, sized.page));
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

// Moved by a CPU near the target, touched by one near the source; nothing where there is no CPU
// near the target.
CpuSet cpus_for(const Machine& machine, const Node& from, const Node& to) {
  const Node* const mover_node = host_of(machine, to);
  const CpuSet movers = mover_node == nullptr ? CpuSet{} : usable_cpus(mover_node);
  if (movers.empty()) return {};
  CpuSet cpus{movers.front()};
  const Node* const toucher_node = host_of(machine, from);
  for (const CpuSet& candidates : {usable_cpus(toucher_node), usable_cpus()}) {
    for (const unsigned cpu : candidates) {
      if (cpus.size() == 1 && cpu != cpus.front()) cpus.push_back(cpu);
    }
  }
  return cpus;
}

}  // namespace

std::vector<Point> migrate_points(const Scope& scope) {
  const std::vector<const Node*> nodes = memory_nodes(scope.machine);
  std::vector<Point> points;
  for (const Node* from : nodes) {
    const auto near = one_of_each_kind(scope.machine, *from);
    for (const Node* to : nodes) {
      if (from == to && nodes.size() > 1) continue;
      const CpuSet cpus = cpus_for(scope.machine, *from, *to);
      if (cpus.empty()) continue;
      const bool nearest = std::ranges::find(near, to) != near.end();
      const unsigned rank = nearest ? 2 : to->kind != from->kind ? 3 : 4;
      for (const Method& method : methods()) {
        for (const std::uint64_t page : {kBasePage, kHugePage}) {
          const Job job{
              .method = method, .from = from->id, .to = to->id, .page = page, .cpus = cpus};
          const Node& smaller = *from->capacity < *to->capacity ? *from : *to;
          points.push_back(migrate_point(scope.machine, job, smaller, rank));
        }
      }
    }
  }
  return points;
}

}  // namespace headrace
