// Moving pages to another node: how fast, and what a program that uses them meanwhile feels.
//
//   move_pages  the kernel moves pages it is given, `batch` per call; addresses stay
//   mbind       the kernel moves a whole range to a new policy (MPOL_MF_MOVE); addresses stay
//   remap       copied by a core to new pages, which then take the place of the old ones (mremap)
//   copy        copied by a core to new pages at a new address: what a program does that can change
//               its pointers, and the bound for the others
//
// Each by 1, 2, 4, ... all CPUs near the target, which share the pages evenly: calls for one
// process meet at its page tables and its memory map, so that more CPUs need not be faster.
//
// The value is the whole region over the whole time. Details: the time per page and of the first
// batch (a program that waits for one page waits for its batch), the pages that stayed, and the
// percentiles of single accesses by another thread, where a core is left for it, to random pages of
// the region from before to after. Where the kernel moves, that thread writes, and no write may be
// lost; remap and copy are not safe against writers, so it only reads there. Each sample moves
// there; moving back is not timed.
#include <linux/mman.h>  // MADV_COLLAPSE, which the C library has since 2.37
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>

#include "backend/linux/linux.h"
#include "core/fail.h"
#include "headrace/buffer.h"
#include "headrace/clock.h"
#include "headrace/copy.h"
#include "headrace/histogram.h"
#include "headrace/placement.h"
#include "measure/cpu_share.h"
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

// The pages of one mover.
struct Part {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
};

Part part_of(std::uint64_t pages, std::size_t i, std::size_t parts) {
  const std::uint64_t first = pages * i / parts;
  return {first, pages * (i + 1) / parts - first};
}

// Anonymous pages of our own, aligned for huge ones.
class Region {
 public:
  // On `node`; anywhere where there is only one.
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

  // Whether all of it is in huge pages. The kernel is asked to put together what it took apart.
  bool make_huge() {
    if (Arenas::huge_part(bytes_) < 1) madvise(bytes_.data(), bytes_.size(), MADV_COLLAPSE);
    return Arenas::huge_part(bytes_) >= 1;
  }

  // All pages to `node`, and those to come.
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

struct Job {
  Method method;
  NodeId from{0};
  NodeId to{0};
  std::uint64_t page = kBasePage;
  Bytes bytes;
  CpuSet movers;
  CpuSet toucher;  // one, or none where no CPU is left

  // Where pages have to be bound to; nothing where there is one memory, in which containers forbid
  // to bind any.
  std::optional<NodeId> source() const { return from == to ? std::nullopt : std::optional(from); }
  std::optional<NodeId> target() const { return from == to ? std::nullopt : std::optional(to); }
};

class Migration final : public Probe {
 public:
  Migration(Job job, std::unique_ptr<Region> region)
      : job_(std::move(job)), region_(std::move(region)) {}

  Result<Sample> sample() override {
    HEADRACE_TRY_STATUS(go_home());
    const std::size_t movers = job_.movers.size();
    std::vector<Moved> moved(movers);
    fresh_.clear();
    fresh_.resize(movers);
    std::atomic<std::size_t> moving{movers};
    CpuSet cpus = job_.movers;
    cpus.insert(cpus.end(), job_.toucher.begin(), job_.toucher.end());
    // Who waits for a page that moves, or for another mover, has no CPU: only that of a single
    // mover tells of disturbance.
    HEADRACE_TRY_STATUS(run_together(cpus, [&](std::size_t i) {
      if (i == movers) return touch(moving);
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
    double share = 1;  // of its time, with a CPU
  };

  std::uint64_t pages() const { return region_->bytes().size() / job_.page; }

  static Result<std::uint64_t> pages_not_on(NodeId node, std::span<const std::byte> bytes) {
    HEADRACE_TRY(const Residency residency, where(bytes));
    const auto there = residency.pages.find(node);
    return residency.total() - (there == residency.pages.end() ? 0 : there->second);
  }

  Status go_home() {
    if (job_.source()) HEADRACE_TRY_STATUS(region_->bind(*job_.source()));
    std::memset(region_->bytes().data(), 1, region_->bytes().size());
    if (job_.page == kHugePage && !region_->make_huge()) {
      return fail(ErrorCode::exhausted, "the kernel gave no huge pages; see transparent_hugepage");
    }
    HEADRACE_TRY(const std::uint64_t elsewhere, pages_not_on(job_.from, region_->bytes()));
    if (elsewhere > 0) {
      return fail(ErrorCode::exhausted, "{} pages could not be put on node {}; free memory there",
                  elsewhere, raw(job_.from));
    }
    written_ = 0;
    stalls_.clear();
    return {};
  }

  Moved move(std::size_t mover) {
    const Part part = part_of(pages(), mover, job_.movers.size());
    Moved result;
    result.begin = system_clock().now();
    if (job_.method.name == "move_pages") {
      result.status = move_in_batches(part, result);
    } else if (job_.method.name == "mbind") {
      result.status = bind_pages(region_->bytes(part), job_.to);
    } else {
      result.status = move_by_copy(part, fresh_[mover]);
    }
    result.end = system_clock().now();
    if (result.first == Nanoseconds{0}) result.first = result.end;
    return result;
  }

  Status move_in_batches(Part part, Moved& result) {
    for (std::uint64_t done = 0; done < part.count; done += job_.method.batch) {
      const Part batch{part.first + done, std::min(job_.method.batch, part.count - done)};
      HEADRACE_TRY_STATUS(region_->move(batch, job_.to));
      if (done == 0) result.first = system_clock().now();
    }
    return {};
  }

  // To new pages of the target, whose allocation is part of it, as it is when the kernel moves, and
  // whose end is not; for `remap` they become the region's.
  Status move_by_copy(Part part, std::unique_ptr<Region>& fresh) {
    HEADRACE_TRY(fresh, Region::make(job_.target(), Bytes{part.count * job_.page}, job_.page));
    const std::span<std::byte> old = region_->bytes(part);
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
  void touch(const std::atomic<std::size_t>& moving) {
    const Ticks& ticks = Ticks::instance();
    Random random(1);
    while (moving > 0) {
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

  // Where the bytes are now, in order.
  std::vector<std::span<std::byte>> moved_bytes() const {
    if (job_.method.name != "copy") return {region_->bytes()};
    std::vector<std::span<std::byte>> parts;
    for (const auto& fresh : fresh_) parts.push_back(fresh->bytes());
    return parts;
  }

  // Every byte as it was, and every write of the other thread there.
  Status check(const std::vector<std::span<std::byte>>& parts) const {
    constexpr std::uint64_t kOnes = 0x0101010101010101;
    std::uint64_t counted = 0;
    bool same = true;
    for (const std::span<std::byte> part : parts) {
      for (std::uint64_t offset = 0; offset < part.size(); offset += job_.page) {
        const std::byte* at = part.data() + offset;
        std::uint64_t word = 0;
        std::memcpy(&word, at, sizeof word);
        counted += word - kOnes;
        // Equal to itself shifted by one byte: all bytes behind the word are the same.
        same = same && at[8] == std::byte{1} && std::memcmp(at + 8, at + 9, job_.page - 9) == 0;
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
    // The kernel takes huge pages apart where the target has none free.
    std::uint64_t stayed = 0;
    double huge = 0;
    for (const std::span<std::byte> part : parts) {
      HEADRACE_TRY(const std::uint64_t elsewhere, pages_not_on(job_.to, part));
      stayed += elsewhere;
      huge += Arenas::huge_part(part) * static_cast<double>(part.size());
    }
    Sample sample{.value = (job_.bytes / time).value,
                  .details = {{"per_page_ns",
                               static_cast<double>(time.count()) / static_cast<double>(pages())},
                              {"first_batch_ns", static_cast<double>(first.count())},
                              {"stayed", static_cast<double>(stayed)}},
                  .cpu_share = moved.front().share};
    if (job_.page == kHugePage) {
      sample.details["still_huge"] = huge / static_cast<double>(job_.bytes.value);
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

  const Job job_;
  std::unique_ptr<Region> region_;
  std::vector<std::unique_ptr<Region>> fresh_;  // of each mover, for those that copy
  std::uint64_t written_ = 0;                   // by touch(), read after it has ended
  Histogram stalls_;
};

Row migrate_row(const Job& job, NodeId cpu_node) {
  return {.experiment = "migrate",
          .parameters = {{"method", std::string(job.method.name)},
                         {"cpu_node", std::uint64_t{raw(cpu_node)}},
                         {"from", std::uint64_t{raw(job.from)}},
                         {"to", std::uint64_t{raw(job.to)}},
                         {"pages", job.page == kHugePage ? "huge" : "base"},
                         {"batch", job.method.batch == 0 ? ParameterValue("all")
                                                         : ParameterValue(job.method.batch)},
                         {"threads", std::uint64_t{job.movers.size()}}},
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

Point migrate_point(const Machine& machine, const Job& job, Row row, const Node& smaller) {
  if (job.from == job.to && job.method.by_kernel) {
    return without(std::move(row), "there is one memory node: the kernel moves between nodes only");
  }
  Point point;
  point.row = std::move(row);
  point.memory = {job.from, PageSize::base};
  Job sized = job;
  sized.bytes = fit(point.row, smaller, kRegion);
  if (sized.bytes.value < job.page * job.movers.size()) {
    return without(std::move(point.row), "too few pages fit on a node");
  }
  // About 1 GB/s with small pages, there and back, three times, and filling.
  point.cost = Nanoseconds{static_cast<std::int64_t>(sized.bytes.value) * 8};
  point.prepare = [&machine, sized](Arenas&, Random&) -> Result<std::unique_ptr<Probe>> {
    for (const NodeId node : {sized.from, sized.to}) {
      HEADRACE_TRY_STATUS(check_room(machine, node, sized.bytes));
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

// Who moves pages between two nodes and who uses them meanwhile.
struct Hands {
  const Node* node = nullptr;  // of the movers
  CpuSet movers;               // the most there can be; none: no CPU near the target
  CpuSet others;               // who may touch, nearest to the source first; movers among them
};

Hands hands_between(const Machine& machine, const Node& from, const Node& to) {
  Hands hands{.node = host_of(machine, to)};
  if (hands.node == nullptr) return hands;
  hands.movers = usable_cpus(hands.node);
  hands.others = usable_cpus(host_of(machine, from));
  std::ranges::copy(usable_cpus(), std::back_inserter(hands.others));
  return hands;
}

// The touching one is not a mover, and shares no core with one if that can be.
void give_hands(const Machine& machine, Job& job, const Hands& hands, std::size_t threads) {
  job.movers.assign(hands.movers.begin(), hands.movers.begin() + std::ptrdiff_t(threads));
  const auto is_mover = [&](unsigned cpu) {
    return std::ranges::find(job.movers, cpu) != job.movers.end();
  };
  const auto shares = [&](unsigned cpu) {
    return std::ranges::any_of(job.movers,
                               [&](unsigned mover) { return share_core(machine, cpu, mover); });
  };
  for (const bool together : {false, true}) {
    for (const unsigned cpu : hands.others) {
      if (job.toucher.empty() && !is_mover(cpu) && shares(cpu) == together) job.toucher = {cpu};
    }
  }
}

// One thread is what one wants to know first, then what all of them reach.
unsigned later(std::size_t threads, std::size_t all) {
  if (threads == 1) return 0;
  return threads == all ? 1 : 2;
}

}  // namespace

std::vector<Point> migrate_points(const Scope& scope) {
  const std::vector<const Node*> nodes = memory_nodes(scope.machine);
  std::vector<Point> points;
  const auto add = [&](const Node& from, const Node& to, unsigned rank) {
    const Hands hands = hands_between(scope.machine, from, to);
    if (hands.movers.empty()) {
      const std::uint64_t ends[] = {raw(from.id), raw(to.id)};
      points.push_back(without({.experiment = "migrate",
                                .parameters = {{"from", ends[0]}, {"to", ends[1]}},
                                .unit = "B/s"},
                               "this process has no CPU near the target"));
    }
    for (const std::size_t threads : team_sizes(hands.movers.size())) {
      for (const Method& method : methods()) {
        for (const std::uint64_t page : {kBasePage, kHugePage}) {
          Job job{.method = method, .from = from.id, .to = to.id, .page = page};
          give_hands(scope.machine, job, hands, threads);
          const Node& smaller = *from.capacity < *to.capacity ? from : to;
          points.push_back(
              migrate_point(scope.machine, job, migrate_row(job, hands.node->id), smaller));
          points.back().rank = rank + later(threads, hands.movers.size());
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

}  // namespace headrace
