// SPDX-License-Identifier: Apache-2.0
// Slabs are allocated and released here. No access is refused while a slab is being allocated.
#include <algorithm>
#include <utility>

#include "cache/core.h"
#include "core/fail.h"
#include "core/waiting/patience.h"
#include "memory/memory.h"

namespace headrace {
namespace {

// After the kernel refused a slab, misses do not ask again for this time.
constexpr Nanoseconds kGrowPause = std::chrono::seconds{1};
// How long an access waits for a slab that another thread allocates, before it is refused. The
// other thread only asks the kernel and touches the pages.
constexpr Nanoseconds kGrowBound = std::chrono::seconds{30};

// Slabs that calls on this thread's stack have reserved and not yet allocated.
thread_local constinit std::size_t slabs_owed = 0;

}  // namespace

bool CacheCore::growing_is_paused(const Node& node) const {
  return node.grow_error && mover_.clock().now() < node.grow_again;
}

// The slab that would make space, if the budget and the kernel allow it. Reserves its bytes.
std::optional<CacheCore::Growth> CacheCore::growth(const SpaceRequest& request) {
  Node& node = nodes_[request.node];
  const std::uint64_t taken = node.frames.capacity() + node.growing;
  if (taken >= node.budget) return std::nullopt;
  if (growing_is_paused(node)) return std::nullopt;
  const std::uint64_t wanted =
      std::max({options_.slab.value, Frames::slab_share(node.budget), slab_for(request.extent)});
  const std::uint64_t bytes = std::min(wanted, node.budget - taken);
  if (bytes / Frames::kGranule * Frames::kGranule < request.extent.length.value) {
    return std::nullopt;
  }
  node.growing += bytes;
  ++slabs_owed;
  return Growth{.node = request.node, .bytes = bytes};
}

void CacheCore::give_back(const Growth& growth) {
  nodes_[growth.node].growing -= growth.bytes;
  --slabs_owed;
}

// The kernel may lack the memory of slabs that are being released. Then this waits until they are
// gone, so that the caller tries again.
void CacheCore::grow(const Growth& growth) {
  std::uint64_t unmapped = 0;
  {
    const MutexLock lock(mutex_);
    unmapped = unmapped_;
  }
  auto slab = new_slab(growth);
  std::uint32_t changes = 0;
  bool again = false;
  {
    DeferredActions deferred(*this);
    const MutexLock lock(mutex_);
    Node& node = nodes_[growth.node];
    give_back(growth);
    Status added;
    if (slab) {
      added = add_slab(node, *std::move(slab), deferred);
    } else {
      added = Unexpected(std::move(slab).error());
    }
    if (node.lost) {
      // `grow_error` keeps the loss of the GPU.
    } else if (added) {
      node.grow_error.reset();
    } else if (again = unmapping_ > 0; !again && unmapped == unmapped_) {
      node.grow_error = std::move(added).error();
      node.grow_again = mover_.clock().now() + kGrowPause;
    }
    go_on(deferred);
    changes = space_changes_.fetch_add(1) + 1;
  }
  mover_.waiting().wake_all(space_changes_);
  if (again) await_growth(changes);
}

Result<std::unique_ptr<Buffer>> CacheCore::new_slab(const Growth& growth) const {
  try {
    Placement placement = Placement::on(nodes_[growth.node].id);
    placement.pages = options_.pages;
    placement.reason = "slab of a cache";
    return allocate(mover_.machine(), Bytes{growth.bytes}, placement);
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  }
}

// If the budget has shrunk meanwhile, the slab is released again, and little else.
Status CacheCore::add_slab(Node& node, std::unique_ptr<Buffer> slab, DeferredActions& deferred) {
  try {
    // The address of a slab on a GPU is a number, which is not dereferenced here.
    std::byte* const begin = slab->device_address()
                                 ? reinterpret_cast<std::byte*>(*slab->device_address())  // NOLINT
                                 : slab->memory();
    const std::span<std::byte> bytes(begin, slab->size().value);
    node.frames.add(bytes, std::move(slab));
    while (fit_budget(node, deferred)) {
    }
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  }
  return {};
}

// Returns slabs to the kernel, which takes a while.
void CacheCore::give_back(std::vector<std::unique_ptr<Buffer>> slabs) {
  const std::size_t count = slabs.size();
  slabs.clear();
  {
    const MutexLock lock(mutex_);
    unmapping_ -= count;
    unmapped_ += count;
    space_changes_.fetch_add(1);
  }
  mover_.waiting().wake_all(space_changes_);
}

// Waits until another thread's slab is there or was refused. False: neither happened in time. That
// thread never waits for this one, even if this one is inside a callback. A callback on a thread
// that owes a slab itself does not wait.
bool CacheCore::await_growth(std::uint32_t seen) {
  if (slabs_owed > 0) return false;
  Patience patience(mover_.clock(), mover_.waiting(), kGrowBound);
  while (space_changes_.load() == seen) {
    if (patience.over()) return false;
    patience.sleep(space_changes_, seen);
  }
  return true;
}

// Releases a slab and drops its blocks. Requires: all of them can be dropped.
void CacheCore::free_slab(Node& node, const std::byte* begin, DeferredActions& deferred) {
  deferred.may_free();
  const auto slab = std::ranges::find(node.frames.slabs(), begin, &Frames::Slab::begin);
  while (slab->lowest != nullptr) {
    drop(static_cast<CacheEntry&>(*slab->lowest), CacheEvent::Kind::evicted, deferred);
  }
  deferred.free(node.frames.remove(begin));
  ++unmapping_;
}

void CacheCore::give_back_slabs() {
  if (options_.reserve) return;
  DeferredActions deferred(*this);
  const MutexLock lock(mutex_);
  for (Node& node : nodes_) {
    std::vector<const std::byte*> empty;
    for (const Frames::Slab& slab : node.frames.slabs()) {
      if (slab.lowest == nullptr) empty.push_back(slab.begin);
    }
    for (const std::byte* begin : empty) free_slab(node, begin, deferred);
  }
}

// Allocates slab by slab, until the node has its budget.
Status CacheCore::reserve_all_of(std::uint16_t node) {
  for (;;) {
    std::optional<Growth> wanted;
    {
      const MutexLock lock(mutex_);
      if (nodes_[node].grow_error) return Unexpected(*nodes_[node].grow_error);
      wanted = growth({.node = node, .extent = {nullptr, 0, 1_B}});
    }
    if (!wanted) return {};
    grow(*wanted);
  }
}

Bytes CacheCore::more_for(NodeId id, Bytes budget) const {
  const MutexLock lock(mutex_);
  const auto node = std::ranges::find(nodes_, id, &Node::id);
  if (node == nodes_.end() || node->on_gpu || node->lost) return {};
  const Bytes has{node->frames.capacity()};
  return budget > has ? budget - has : Bytes{};
}

}  // namespace headrace
