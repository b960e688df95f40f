// SPDX-License-Identifier: Apache-2.0
// SpillChain: allocates from the first heap that is not full.

#include "core/check.h"
#include "headrace/heap.h"

namespace headrace {
namespace {

constexpr unsigned kPassesUntilAsked = 1024;

}  // namespace

SpillChain::SpillChain(const std::vector<Heap*>& heaps) : members_(heaps.size()) {
  CHECK(!heaps.empty());
  for (std::size_t i = 0; i < heaps.size(); ++i) members_[i].heap = heaps[i];
}

// `refused` and `passed` are hints: a thread that reads old values asks a heap once too often, or
// skips it a few times more.
void* SpillChain::allocate_bytes(std::size_t size, std::size_t align) noexcept {
  for (Member& member : members_) {
    if (size >= member.refused && ++member.passed < kPassesUntilAsked) continue;
    void* const object = member.heap->allocate_bytes(size, align);
    if (object != nullptr) {
      if (size >= member.refused) member.refused = kNone;
      return object;
    }
    member.passed = 0;
    if (size < member.refused) member.refused = size;
  }
  return nullptr;
}

void SpillChain::free(void* object) noexcept {
  if (object == nullptr) return;
  Heap* const owner = Heap::owner(object);
  for (Member& member : members_) {
    if (member.heap != owner) continue;
    owner->free(object);
    if (member.refused != kNone) member.refused = kNone;
    return;
  }
  CHECK(false);  // freed into a chain that did not allocate it
}

void* SpillChain::do_allocate(std::size_t size, std::size_t align) {
  void* const object = allocate_bytes(size, align);
  return object != nullptr ? object : std::pmr::null_memory_resource()->allocate(size, align);
}

void SpillChain::do_deallocate(void* object, std::size_t, std::size_t) { free(object); }

bool SpillChain::do_is_equal(const std::pmr::memory_resource& other) const noexcept {
  return this == &other;
}

}  // namespace headrace
