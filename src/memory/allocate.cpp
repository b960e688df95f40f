// SPDX-License-Identifier: Apache-2.0
// Allocates by a placement: the requested page size or the next smaller one available, a memory
// policy on the pages, and a first touch from CPUs near their nodes.

#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "core/check.h"
#include "core/fail.h"
#include "headrace/buffer.h"
#include "host/files.h"
#include "memory/device/device_memory.h"
#include "memory/device/pinned_memory.h"
#include "memory/file_memory.h"
#include "memory/layout.h"
#include "memory/mapped_memory.h"
#include "memory/memory.h"

namespace headrace {
namespace {

// Largest accepted request: beyond it rounding up could overflow; x86-64 addresses end at 2^57.
constexpr Bytes kMaxBuffer{std::uint64_t{1} << 56};

// Page sizes to try, in order.
std::span<const PageSize> fallbacks(PageSize asked) {
  using enum PageSize;
  static constexpr std::array kOrder{huge_1g, huge_2m, transparent, base};
  return std::span(std::ranges::find(kOrder, asked), kOrder.end());
}

// An attempt with one page size: the memory, or in `unfit` why this size is unavailable.
struct Attempt {
  MappedMemory mapping;
  std::string unfit;
};

Attempt unfit(std::string why) { return {.mapping = {}, .unfit = std::move(why)}; }

// Maps memory for the layout that other processes can map read-only.
Result<SealedMemory> map_for_others(const Layout& layout, Bytes align) {
  const Pages& pages = layout.pages;
  const bool transparent = pages.size == PageSize::transparent;
  HEADRACE_TRY(auto shared,
               SealedMemory::make(layout.mapped, std::max(align, pages.place_by),
                                  pages.pool ? std::optional(pages.map_by) : std::nullopt));
  ::madvise(shared.mapping.memory(), layout.mapped.value,
            transparent ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  return shared;
}

// Why shared memory cannot have this page size; empty: it can.
std::string why_unfit_for_others(const Layout& layout) {
  if (layout.pages.size != PageSize::transparent) return {};
  const std::string setting = HostFiles().text("sys/kernel/mm/transparent_hugepage/shmem_enabled");
  if (!setting.contains("[never]") && !setting.contains("[deny]")) return {};
  return "transparent huge pages are off for shared memory; write advise into "
         "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
}

// Maps memory for the layout, aligned to its pages and to `align`. Returns errno on failure.
std::expected<MappedMemory, int> map(const Layout& layout, Bytes align) {
  const Pages& pages = layout.pages;
  constexpr int kUsable = PROT_READ | PROT_WRITE;
  if (pages.pool) {
    const int pool = MAP_HUGETLB | std::countr_zero(pages.map_by.value) << MAP_HUGE_SHIFT;
    if (align <= pages.map_by) {
      return MappedMemory::make(layout.mapped, align, pages.map_by, kUsable, pool);
    }
    // The pool may lack the extra pages that cutting an aligned piece would need.
    auto addresses = MappedMemory::make(layout.mapped, align, Bytes{1}, PROT_NONE);
    if (!addresses) return addresses;
    return MappedMemory::over(*std::move(addresses), kUsable, MAP_PRIVATE | MAP_ANONYMOUS | pool);
  }
  const bool transparent = pages.size == PageSize::transparent;
  // Older kernels align to huge pages only by chance.
  auto mapping =
      MappedMemory::make(layout.mapped, transparent ? std::max(align, pages.place_by) : align,
                         pages.map_by, PROT_NONE);
  if (!mapping) return mapping;
  // The kernel counts the memory from here on.
  const std::uint64_t length = layout.mapped.value;
  if (::mprotect(mapping->memory(), length, kUsable) != 0) return std::unexpected(errno);
  // Refused only by kernels without transparent huge pages, where it changes nothing.
  ::madvise(mapping->memory(), length, transparent ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  return mapping;
}

// The kernel spills silently when a node is full; a strict request must not accept it.
Status check_placed(std::span<const std::byte> bytes, const Layout& layout) {
  HEADRACE_TRY(const Residency now, where(bytes));
  for (const auto& [id, pages] : now.pages) {
    if (std::ranges::find(layout.ids, id) != layout.ids.end()) continue;
    return fail(ErrorCode::exhausted,
                "{} pages went to node {}, which the placement does not name; free now: {}; ask "
                "for less or let it spill (strict = false)",
                pages, raw(id), read_host_memory().free_text());
  }
  return {};
}

// Whether the kernel interleaves, on a host with other nodes too.
bool may_spill(const Layout& layout, const HostMemory& host) {
  return layout.policy && std::ranges::any_of(host.nodes, [&](const NodeMemory& node) {
           return std::ranges::find(layout.ids, node.id) == layout.ids.end();
         });
}

// Another request may take the memory just seen as free; then try again.
Result<Claim> claim_space(Layout& layout) {
  if (layout.by_first_touch()) return Claim::make(demand_of(layout, read_unclaimed_memory()));
  if (layout.placement.spill.empty()) return Claim::make(demand_of(layout, {}));
  constexpr int kTries = 5;
  for (int i = 1;; ++i) {
    const Status cut = spill(layout, read_unclaimed_memory());
    if (!cut && !layout.placement.anywhere) return Unexpected(cut.error());
    auto claim = Claim::make(demand_of(layout, {}));
    if (claim || !cut || i == kTries) return claim;
  }
}

Status lock(std::byte* memory, Bytes length) {
  if (::mlock(memory, length.value) == 0) return {};
  const int error = errno;
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  return fail(
      code_of_errno(error) == ErrorCode::exhausted ? ErrorCode::denied : code_of_errno(error),
      "cannot lock {} in memory ({}); this process may lock {}: raise ulimit -l", to_string(length),
      std::generic_category().message(error), to_string(Bytes{limit.rlim_cur}));
}

// `file`: for memory that other processes can map; receives its file. nullptr: for other memory.
Result<Attempt> attempt(Layout& layout, const HostMemory& host, Bytes align, OwnDescriptor* file) {
  if (std::string why = why_unfit(layout, host); !why.empty()) return unfit(std::move(why));
  if (std::string why; file != nullptr && !(why = why_unfit_for_others(layout)).empty()) {
    return unfit(std::move(why));
  }
  const bool touch_now =
      !layout.by_first_touch() && (layout.placement.touch || layout.placement.lock ||
                                   layout.placement.pin || layout.pages.pool);
  std::optional<Claim> claim;
  const bool in_order = !layout.placement.spill.empty() && !layout.placement.anywhere;
  const bool counted = layout.placement.strict || in_order || touch_now;
  if (!layout.pages.pool && counted) {
    HEADRACE_TRY(claim, claim_space(layout));
  }
  MappedMemory mapping;
  if (file != nullptr) {
    auto shared = map_for_others(layout, align);
    if (!shared && layout.pages.pool) return unfit(std::move(shared.error().message));
    if (!shared) return Unexpected(std::move(shared.error()));
    mapping = std::move(shared->mapping);
    *file = std::move(shared->file);
  } else {
    auto mapped = map(layout, align);
    if (!mapped) {
      const std::string why = std::generic_category().message(mapped.error());
      if (layout.pages.pool) return unfit(fmt::format("the kernel gives none (mmap: {})", why));
      return fail(
          ErrorCode::exhausted,
          "cannot map {} (mmap: {}); ask for less, or raise ulimit -v or the overcommit limit",
          to_string(layout.mapped), why);
    }
    mapping = *std::move(mapped);
  }
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
  settle(mapping.memory(), layout);
  if (layout.placement.strict && may_spill(layout, host)) {
    HEADRACE_TRY_STATUS(check_placed({mapping.memory(), mapping.length().value}, layout));
  }
  if (layout.placement.lock) HEADRACE_TRY_STATUS(lock(mapping.memory(), mapping.length()));
  return Attempt{std::move(mapping), {}};
}

// Does nothing unless requested. Pages cannot move once pinned, so their nodes are checked first.
Result<std::shared_ptr<const PinnedMemory>> pin(const MappedMemory& mapping, const Layout& layout) {
  if (!layout.placement.pin) return nullptr;
  const std::span<std::byte> bytes(mapping.memory(), mapping.length().value);
  HEADRACE_TRY(auto pinned, PinnedMemory::pin(bytes, layout.ids.front()));
  if (layout.placement.strict) HEADRACE_TRY_STATUS(check_placed(bytes, layout));
  return pinned;
}

Status check_size(Bytes bytes, Bytes align) {
  if (bytes.value == 0) {
    return fail(ErrorCode::invalid, "a buffer of 0 bytes was asked for; ask for at least 1");
  }
  if (!std::has_single_bit(align.value)) {
    return fail(ErrorCode::invalid, "{} bytes are no alignment; give a power of two", align.value);
  }
  if (bytes > kMaxBuffer || align > kMaxBuffer) {
    return fail(ErrorCode::exhausted, "{} are more than any machine has; ask for less",
                to_string(std::max(bytes, align)));
  }
  return {};
}

}  // namespace

// Makes buffers; the only friend of Buffer.
class LinuxMemory {
 public:
  static Result<std::unique_ptr<Buffer>> allocate(const Machine& machine, Bytes bytes,
                                                  const Placement& placement, Bytes align,
                                                  const HostMemory& host,
                                                  OwnDescriptor* file = nullptr) {
    HEADRACE_TRY_STATUS(check_nodes(machine, placement, host));
    std::string fallback;
    for (const PageSize size : fallbacks(placement.pages)) {
      Layout layout = lay_out(machine, placement, bytes, size);
      HEADRACE_TRY(Attempt done, attempt(layout, host, align, file));
      if (done.unfit.empty()) {
        const Bytes mapped = done.mapping.length();
        HEADRACE_TRY(auto pinned, pin(done.mapping, layout));
        return std::unique_ptr<Buffer>(new Buffer(bytes, placement.nodes.front().node,
                                                  done.mapping.release(), mapped, placement, size,
                                                  std::move(fallback), false, std::move(pinned)));
      }
      fallback +=
          fmt::format("{}{}: {}", fallback.empty() ? "" : "; ", to_string(size), done.unfit);
    }
    CHECK(false);  // base pages fit everywhere
    return {};
  }

  static Result<std::unique_ptr<Buffer>> allocate_on_gpu(const Node& gpu, Bytes bytes,
                                                         Placement placement, Bytes align) {
    if (placement.pin) {
      return fail(ErrorCode::unsupported,
                  "memory of {} is not pinned, which is for memory that CPUs reach; leave it out",
                  gpu.name);
    }
    HEADRACE_TRY(auto device, DeviceMemory::allocate(gpu, bytes));
    if (device->address() % align.value != 0) {
      return fail(ErrorCode::unsupported,
                  "the driver gives memory of {} at no multiple of {}; ask for at most 256 B",
                  gpu.name, to_string(align));
    }
    return std::unique_ptr<Buffer>(new Buffer(gpu.id, std::move(device), std::move(placement)));
  }

  static Result<std::unique_ptr<Buffer>> allocate_in_file(Bytes bytes, Placement placement,
                                                          const Machine& machine,
                                                          const Node& storage, Bytes align) {
    if (placement.pin) {
      return fail(ErrorCode::unsupported,
                  "memory in a file cannot be pinned; place it on a node of "
                  "memory");
    }
    HEADRACE_TRY(MappedMemory mapping, map_file(storage, bytes, align));
    if (placement.lock) HEADRACE_TRY_STATUS(lock(mapping.memory(), mapping.length()));
    const Bytes mapped = mapping.length();
    std::string fallback;
    if (placement.pages != PageSize::base) {
      fallback = fmt::format("{}: pages of a file are base pages", to_string(placement.pages));
    }
    return std::unique_ptr<Buffer>(new Buffer(bytes, cached_on(machine), mapping.release(), mapped,
                                              std::move(placement), PageSize::base,
                                              std::move(fallback), true));
  }

 private:
  // The node on which CPUs find the cached bytes of a file.
  static NodeId cached_on(const Machine& machine) {
    const auto memory = std::ranges::find_if(machine.nodes, &Node::byte_addressable);
    return calling_node(machine).value_or(memory == machine.nodes.end() ? NodeId{0} : memory->id);
  }
};

Result<std::unique_ptr<Buffer>> allocate(const Machine& machine, Bytes bytes,
                                         const Placement& placement, Bytes align) {
  HEADRACE_TRY_STATUS(check_size(bytes, align));
  HEADRACE_TRY(Placement resolved, resolve_with_storage(machine, placement, calling_node(machine)));
  if (const Node* storage = storage_of(machine, resolved)) {
    return LinuxMemory::allocate_in_file(bytes, std::move(resolved), machine, *storage, align);
  }
  if (const Node* gpu = gpu_of(machine, resolved)) {
    return LinuxMemory::allocate_on_gpu(*gpu, bytes, std::move(resolved), align);
  }
  const HostMemory host = read_host_memory();
  leave_out_unusable(resolved, host);
  return LinuxMemory::allocate(machine, bytes, resolved, align, host);
}

Result<SharedBuffer> allocate_shared(const Machine& machine, Bytes bytes,
                                     const Placement& placement) {
  HEADRACE_TRY_STATUS(check_size(bytes, {1}));
  HEADRACE_TRY(Placement resolved, resolve_with_storage(machine, placement, calling_node(machine)));
  if (storage_of(machine, resolved) != nullptr || gpu_of(machine, resolved) != nullptr) {
    return fail(ErrorCode::unsupported,
                "only memory of CPUs is shared with other processes; place it on dram, hbm or cxl");
  }
  const HostMemory host = read_host_memory();
  leave_out_unusable(resolved, host);
  SharedBuffer shared;
  HEADRACE_TRY(shared.buffer,
               LinuxMemory::allocate(machine, bytes, resolved, {1}, host, &shared.file));
  return shared;
}

Result<std::unique_ptr<Buffer>> allocate_for_cpus(const Machine& machine, Bytes bytes,
                                                  const Placement& placement, Bytes align) {
  if (const Node* gpu = gpu_of(machine, placement)) {
    return fail(ErrorCode::unsupported,
                "CPUs do not reach the memory of {}; place it on another node, and copy what the "
                "GPU needs",
                gpu->name);
  }
  return allocate(machine, bytes, placement, align);
}

Buffer::Buffer(Bytes size, NodeId node, std::byte* memory, Bytes mapped, Placement placement,
               PageSize page_size, std::string fallback, bool in_file,
               std::shared_ptr<const PinnedMemory> pinned)
    : Object(size, node, memory),
      mapped_(mapped),
      placement_(std::move(placement)),
      page_size_(page_size),
      fallback_(std::move(fallback)),
      in_file_(in_file),
      pinned_(std::move(pinned)) {}

std::optional<Error> loss_of(const Node& gpu) { return DeviceMemory::loss_of(gpu); }

Buffer::Buffer(NodeId node, std::shared_ptr<const DeviceMemory> device, Placement placement)
    : Object(device->size(), node, nullptr, device->address()),
      placement_(std::move(placement)),
      page_size_(PageSize::base),
      in_file_(false),
      device_(std::move(device)) {}

Buffer::~Buffer() {
  pinned_.reset();  // before its memory
  if (memory() != nullptr) unmap(memory(), mapped_.value);
}

}  // namespace headrace
