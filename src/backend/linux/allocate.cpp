// Carries a placement out: pages of the size asked for or the next smaller that is to be had, a
// memory policy on them, a first touch from near their nodes.

#include <fmt/core.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "backend/linux/free_check.h"
#include "backend/linux/host_memory.h"
#include "backend/linux/plan.h"
#include "backend/linux/policy.h"
#include "backend/linux/touch.h"
#include "core/check.h"
#include "core/fail.h"
#include "headrace/buffer.h"

namespace headrace {
namespace {

// Largest request looked at: beyond it rounding up could overflow, and x86-64 addresses end at
// 2^57.
constexpr Bytes kMaxBuffer{std::uint64_t{1} << 56};

// Near the limit on mappings (vm.max_map_count) a piece of a merged mapping cannot be cut out: then
// its pages go back and only its addresses stay taken.
void unmap(std::byte* memory, std::uint64_t length) {
  if (::munmap(memory, length) == 0) return;
  CHECK(errno == ENOMEM && ::madvise(memory, length, MADV_DONTNEED) == 0);
}

// Anonymous memory, unmapped when it goes unless it is given away.
class Mapping {
 public:
  Mapping() = default;
  Mapping(std::byte* memory, Bytes length) : memory_(memory), length_(length) {}
  Mapping(Mapping&& other) noexcept { *this = std::move(other); }
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(length_, other.length_);
    return *this;
  }
  ~Mapping() {
    if (memory_ != nullptr) unmap(memory_, length_.value);
  }

  std::byte* memory() const { return memory_; }
  Bytes length() const { return length_; }
  std::byte* release() { return std::exchange(memory_, nullptr); }

 private:
  std::byte* memory_ = nullptr;
  Bytes length_;
};

// One size of pages, in numbers.
struct Pages {
  PageSize size;
  Bytes map_by;       // the mapping is a multiple of this
  Bytes place_by;     // what goes to one node together
  bool pool = false;  // from a hugetlb pool
};

Bytes base_page() { return {static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE))}; }

Pages pages_of(PageSize size) {
  switch (size) {
    case PageSize::base: return {size, base_page(), base_page()};
    case PageSize::transparent: return {size, base_page(), 2_MiB};
    case PageSize::huge_2m: return {size, 2_MiB, 2_MiB, true};
    case PageSize::huge_1g: return {size, 1_GiB, 1_GiB, true};
  }
  CHECK(false);
  return {};
}

// What to try, in order.
std::vector<PageSize> fallbacks(PageSize asked) {
  using enum PageSize;
  switch (asked) {
    case base: return {base};
    case transparent: return {transparent, base};
    case huge_2m: return {huge_2m, transparent, base};
    case huge_1g: return {huge_1g, huge_2m, transparent, base};
  }
  CHECK(false);
  return {};
}

Bytes round_up(Bytes bytes, Bytes to) { return to * ((bytes.value + to.value - 1) / to.value); }

// An attempt with one size of pages: the memory, or in `unfit` why this size is not to be had.
struct Attempt {
  Mapping mapping;
  std::string unfit;
};

Attempt unfit(std::string why) { return {.mapping = {}, .unfit = std::move(why)}; }

// A placement on this host with one size of pages.
struct Layout {
  const Machine& machine;
  const Placement& placement;
  Pages pages;
  Bytes mapped;
  std::vector<NodeId> ids;
  std::vector<PageRun> runs;  // empty: the kernel deals the pages itself

  bool interleaved() const { return ids.size() > 1 && plain_interleave(placement.nodes); }
};

void plan(Layout& layout, Bytes unit) {
  layout.runs = layout.interleaved() ? std::vector<PageRun>{}
                                     : plan_runs(layout.mapped, unit, layout.placement.nodes);
}

Layout lay_out(const Machine& machine, const Placement& placement, Bytes bytes, PageSize size) {
  const Pages pages = pages_of(size);
  Layout layout{machine, placement, pages, round_up(bytes, pages.map_by), {}, {}};
  for (const NodeWeight& each : placement.nodes) layout.ids.push_back(each.node);
  // One run for each node at least.
  const std::uint64_t most = std::max<std::uint64_t>(kMaxRuns, layout.ids.size());
  plan(layout, choose_unit(layout.mapped, pages.place_by, placement.nodes, most));
  return layout;
}

Demand demand_of(const Layout& layout) {
  Demand demand{.nodes = {}, .strict = layout.placement.strict};
  const auto by_node = bytes_by_node(layout.runs, layout.ids.size());
  for (std::size_t i = 0; i < layout.ids.size(); ++i) {
    demand.nodes[layout.ids[i]] =
        layout.interleaved()
            ? interleave_share(layout.mapped, layout.pages.place_by, layout.ids.size())
            : by_node[i];
  }
  return demand;
}

// Empty if the pools have the pages that the layout needs.
std::string missing_in_pools(const Layout& layout, const HostMemory& host) {
  const Bytes page = layout.pages.map_by;
  const auto free_on = [&](const NodeMemory& node) {
    const auto found = node.free_huge.find(page);
    return found == node.free_huge.end() ? 0 : found->second;
  };
  std::uint64_t free_in_all = 0;
  for (const NodeMemory& node : host.nodes) free_in_all += node.allowed ? free_on(node) : 0;
  for (const auto& [id, bytes] : demand_of(layout).nodes) {
    const std::uint64_t free = layout.placement.strict ? free_on(*host.find(id)) : free_in_all;
    const Bytes needed = layout.placement.strict ? bytes : layout.mapped;
    if (needed / page <= free) continue;
    return fmt::format(
        "{} free pages of {} on node {}, {} needed; reserve them with "
        "/sys/devices/system/node/node{}/hugepages/hugepages-{}kB/nr_hugepages",
        free, to_string(page), raw(id), needed / page, raw(id), page / 1_KiB);
  }
  return {};
}

// Empty if the layout can have its size of pages as far as can be told beforehand.
std::string why_unfit(const Layout& layout, const HostMemory& host) {
  if (layout.pages.pool) return missing_in_pools(layout, host);
  if (layout.pages.size != PageSize::transparent) return {};
  if (!host.transparent) {
    return "transparent huge pages are off; write madvise into "
           "/sys/kernel/mm/transparent_hugepage/enabled";
  }
  const bool alone = layout.ids.size() == 1;
  const Bytes least =
      alone ? layout.pages.place_by : turn(layout.placement.nodes, layout.pages.place_by);
  if (layout.mapped < least) {
    return fmt::format(
        "{} are less than {}", to_string(layout.mapped),
        alone ? "a page of 2 MiB"
              : fmt::format("one turn of 2 MiB pages over the nodes ({})", to_string(least)));
  }
  return {};
}

// Memory of `length` bytes, aligned so that huge pages fit. An errno value where there is none.
std::expected<Mapping, int> map(const Layout& layout) {
  int flags = MAP_PRIVATE | MAP_ANONYMOUS;
  if (layout.pages.pool) {
    flags |= MAP_HUGETLB | std::countr_zero(layout.pages.map_by.value) << MAP_HUGE_SHIFT;
  }
  // Older kernels align to huge pages only by chance: map more and give back the ends.
  const bool align = layout.pages.size == PageSize::transparent;
  const std::uint64_t slack = align ? layout.pages.place_by.value : 0;
  const std::uint64_t length = layout.mapped.value;
  void* memory = ::mmap(nullptr, length + slack, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (memory == MAP_FAILED) return std::unexpected(errno);
  auto* begin = static_cast<std::byte*>(memory);
  if (align) {
    const std::uint64_t head = (slack - reinterpret_cast<std::uintptr_t>(begin) % slack) % slack;
    if (head > 0) unmap(begin, head);
    begin += head;
    if (slack > head) unmap(begin + length, slack - head);
  }
  // Refused only by kernels without transparent huge pages, where it changes nothing.
  if (!layout.pages.pool) ::madvise(begin, length, align ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  return Mapping{begin, layout.mapped};
}

// Sets the policies of all runs; 0 or the errno value of the first that failed.
int set_policies(std::byte* memory, const Layout& layout) {
  if (layout.interleaved()) {
    return set_policy(memory, layout.mapped.value, Policy::interleave, layout.ids);
  }
  const Policy policy = layout.placement.strict ? Policy::bind : Policy::preferred;
  for (const PageRun& run : layout.runs) {
    const int error =
        set_policy(memory + run.offset, run.length, policy, {&layout.ids[run.node], 1});
    if (error != 0) return error;
  }
  return 0;
}

// As set_policies, with longer runs where the process has too many mappings for these.
Status place_pages(std::byte* memory, Layout& layout, const HostMemory& host) {
  int error = set_policies(memory, layout);
  while (error == ENOMEM && layout.runs.size() > layout.ids.size()) {
    const Bytes unit{layout.runs.front().length / layout.placement.nodes.front().weight};
    plan(layout, unit * 2);
    error = set_policies(memory, layout);
  }
  switch (error) {
    case 0: return {};
    case EPERM:
    case ENOSYS:
      // On the only node there is, everything is bound to it already.
      if (host.nodes.size() == 1) return {};
      return fail(ErrorCode::denied,
                  "this process may not set memory policies (mbind); give the container "
                  "CAP_SYS_NICE or a seccomp profile that allows mbind");
    case ENOMEM:
      return fail(ErrorCode::exhausted,
                  "no mappings left for the runs of this placement; raise vm.max_map_count");
    case EINVAL:
      return fail(ErrorCode::denied,
                  "the kernel refuses a node of this placement; its cpuset allows nodes {}",
                  host.allowed_list);
    default: return fail_errno(error, "cannot place memory (mbind)");
  }
}

std::vector<TouchGroup> touch_groups(const Layout& layout) {
  std::vector<TouchGroup> groups;
  for (const NodeId id : layout.ids) {
    const Node* node = layout.machine.find(id);
    const Node* host = node == nullptr ? nullptr : host_of(layout.machine, *node);
    groups.push_back({host == nullptr ? CpuSet{} : host->cpus, {}});
  }
  for (const PageRun& run : layout.runs) groups[run.node].runs.push_back(run);
  if (!layout.interleaved()) return groups;
  TouchGroup all{{}, {{0, layout.mapped.value, 0}}};
  for (const TouchGroup& group : groups) {
    all.cpus.insert(all.cpus.end(), group.cpus.begin(), group.cpus.end());
  }
  std::ranges::sort(all.cpus);
  all.cpus.erase(std::ranges::unique(all.cpus).begin(), all.cpus.end());
  return {std::move(all)};
}

// The kernel's interleaving spills without a word when a node is full; a strict request does not
// accept that.
Status check_interleaved(const Mapping& mapping, const Layout& layout, const HostMemory& host) {
  if (!layout.interleaved() || !layout.placement.strict) return {};
  const auto elsewhere = [&](NodeId id) {
    return std::ranges::find(layout.ids, id) == layout.ids.end();
  };
  if (std::ranges::none_of(host.nodes,
                           [&](const NodeMemory& node) { return elsewhere(node.id); })) {
    return {};
  }
  const auto residency = where({mapping.memory(), mapping.length().value});
  if (!residency) return std::unexpected(residency.error());
  for (const auto& [id, pages] : residency->pages) {
    if (!elsewhere(id)) continue;
    return fail(ErrorCode::exhausted,
                "{} pages went to node {} while the nodes of the placement were full; free now: "
                "{}; ask for less or let it spill (strict = false)",
                pages, raw(id), read_host_memory().free_text());
  }
  return {};
}

Result<Attempt> attempt(Layout& layout, const HostMemory& host) {
  if (std::string why = why_unfit(layout, host); !why.empty()) return unfit(std::move(why));
  const bool touch_now = layout.placement.touch || layout.pages.pool;
  std::optional<Claim> claim;
  if (!layout.pages.pool && (layout.placement.strict || touch_now)) {
    HEADRACE_TRY(claim, Claim::make(demand_of(layout)));
  }
  auto mapped = map(layout);
  if (!mapped) {
    const std::string why = std::generic_category().message(mapped.error());
    if (layout.pages.pool) return unfit(fmt::format("the kernel gives none (mmap: {})", why));
    return fail(
        ErrorCode::exhausted,
        "cannot map {} (mmap: {}); ask for less, or raise ulimit -v or the overcommit limit",
        to_string(layout.mapped), why);
  }
  Mapping mapping = *std::move(mapped);
  HEADRACE_TRY_STATUS(place_pages(mapping.memory(), layout, host));
  if (!touch_now) return Attempt{std::move(mapping), {}};
  const int error = touch(mapping.memory(), touch_groups(layout), layout.pages.place_by);
  if (error != 0) {
    if (layout.pages.pool) return unfit("the pool ran out while the pages were being touched");
    return fail(ErrorCode::exhausted,
                "memory ran out while {} were being touched ({}); free now: {}",
                to_string(layout.mapped), std::generic_category().message(error),
                read_host_memory().free_text());
  }
  HEADRACE_TRY_STATUS(check_interleaved(mapping, layout, host));
  return Attempt{std::move(mapping), {}};
}

Status check_request(Bytes bytes, const Placement& placement) {
  if (bytes.value == 0) {
    return fail(ErrorCode::invalid, "a buffer of 0 bytes was asked for; ask for at least 1");
  }
  if (bytes > kMaxBuffer) {
    return fail(ErrorCode::exhausted, "{} are more than any machine has; ask for less",
                to_string(bytes));
  }
  if (placement.nodes.empty() && !placement.kind) {
    return fail(ErrorCode::invalid, "the placement names no node and no kind; name one");
  }
  for (const NodeWeight& each : placement.nodes) {
    if (each.weight == 0) {
      return fail(ErrorCode::invalid, "node {} has weight 0; leave it out or give it at least 1",
                  raw(each.node));
    }
    if (std::ranges::count(placement.nodes, each.node, &NodeWeight::node) > 1) {
      return fail(ErrorCode::invalid, "node {} is named twice; name it once with a larger weight",
                  raw(each.node));
    }
  }
  return {};
}

Status check_nodes(const Machine& machine, const Placement& placement, const HostMemory& host) {
  for (const NodeWeight& each : placement.nodes) {
    const NodeMemory* node = host.find(each.node);
    if (node == nullptr) {
      CpuSet ids;
      for (const NodeMemory& there : host.nodes) ids.push_back(raw(there.id));
      return fail(ErrorCode::absent,
                  "this host has no memory on node {}, only on {}; the machine is described by {}",
                  raw(each.node), to_string(ids), machine.source);
    }
    if (!node->allowed) {
      return fail(ErrorCode::denied,
                  "node {} is outside the cpuset of this process ({}); widen it (cpuset.mems)",
                  raw(each.node), host.allowed_list);
    }
  }
  return {};
}

std::optional<NodeId> calling_node(const Machine& machine) {
  const int cpu = ::sched_getcpu();
  const Node* node = cpu < 0 ? nullptr : machine.node_of_cpu(static_cast<unsigned>(cpu));
  return node == nullptr ? std::nullopt : std::optional(node->id);
}

}  // namespace

// Makes buffers; the one friend of Buffer.
class LinuxMemory {
 public:
  static Result<std::unique_ptr<Buffer>> allocate(const Machine& machine, Bytes bytes,
                                                  const Placement& placement) {
    const HostMemory host = read_host_memory();
    HEADRACE_TRY_STATUS(check_nodes(machine, placement, host));
    std::string fallback;
    for (const PageSize size : fallbacks(placement.pages)) {
      Layout layout = lay_out(machine, placement, bytes, size);
      HEADRACE_TRY(Attempt done, attempt(layout, host));
      if (done.unfit.empty()) {
        const Bytes mapped = done.mapping.length();
        return std::unique_ptr<Buffer>(new Buffer(done.mapping.release(), bytes, mapped, placement,
                                                  size, std::move(fallback)));
      }
      fallback +=
          fmt::format("{}{}: {}", fallback.empty() ? "" : "; ", to_string(size), done.unfit);
    }
    CHECK(false);  // base pages fit everywhere
    return {};
  }
};

Result<std::unique_ptr<Buffer>> allocate(const Machine& machine, Bytes bytes,
                                         const Placement& placement) {
  HEADRACE_TRY_STATUS(check_request(bytes, placement));
  HEADRACE_TRY(Placement resolved, resolve(machine, placement, calling_node(machine)));
  return LinuxMemory::allocate(machine, bytes, resolved);
}

Buffer::Buffer(std::byte* memory, Bytes size, Bytes mapped, Placement placement, PageSize page_size,
               std::string fallback)
    : Object(size, placement.nodes.front().node, memory),
      mapped_(mapped),
      placement_(std::move(placement)),
      page_size_(page_size),
      fallback_(std::move(fallback)) {}

Buffer::~Buffer() { unmap(memory(), mapped_.value); }

}  // namespace headrace
