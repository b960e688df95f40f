// SPDX-License-Identifier: Apache-2.0
#include "memory/heap/owners.h"

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>

#include "core/check.h"
#include "core/fork.h"
#include "headrace/heap.h"
#include "memory/heap/thread_cache.h"

namespace headrace {
namespace {

constexpr unsigned kPageBits = 12;
constexpr unsigned kTableBits = 12;
// Addresses that mmap gives without a hint on x86-64 and AArch64.
constexpr unsigned kAddressBits = kPageBits + 3 * kTableBits;

// The address of a heap. Its low bits, free by alignment, hold the use of the page; the bits above
// all addresses count the live objects.
using OwnerEntry = std::uintptr_t;
constexpr OwnerEntry kUseBits = alignof(Heap) - 1;
constexpr OwnerEntry kOneOut = OwnerEntry{1} << kAddressBits;
constexpr OwnerEntry kHeapBits = kOneOut - 1 - kUseBits;
static_assert(static_cast<OwnerEntry>(use_of_class(kSizeClasses - 1)) <= kUseBits);

OwnerEntry entry_of(Heap* heap, PageUse use) {
  return reinterpret_cast<OwnerEntry>(heap) | static_cast<OwnerEntry>(use);
}
PageUse use_in(OwnerEntry entry) { return static_cast<PageUse>(entry & kUseBits); }
OwnerEntry with_use(OwnerEntry entry, PageUse use) {
  return (entry & ~kUseBits) | static_cast<OwnerEntry>(use);
}

template <class T>
using OwnerTable = std::array<std::atomic<T>, std::size_t{1} << kTableBits>;
using OwnerLeaf = OwnerTable<OwnerEntry>;    // entry: one page; table: 16 MiB
using OwnerMiddle = OwnerTable<OwnerLeaf*>;  // table: 64 GiB

constinit OwnerTable<OwnerMiddle*> owner_root{};

std::size_t table_index(std::uintptr_t page, unsigned level) {
  return page >> level * kTableBits & ((std::size_t{1} << kTableBits) - 1);
}

template <class T>
T& grown(std::atomic<T*>& slot) {
  T* there = slot.load();
  if (there != nullptr) return *there;
  auto fresh = std::make_unique<T>();
  return slot.compare_exchange_strong(there, fresh.get()) ? *fresh.release() : *there;
}

// The entry of the page of `address`; nullptr: it has no table.
std::atomic<OwnerEntry>* find_entry(const void* address) {
  const std::uintptr_t page = reinterpret_cast<std::uintptr_t>(address) >> kPageBits;
  if (page >> 3 * kTableBits != 0) return nullptr;
  OwnerMiddle* const middle = owner_root[table_index(page, 2)];
  if (middle == nullptr) return nullptr;
  OwnerLeaf* const leaf = (*middle)[table_index(page, 1)];
  return leaf == nullptr ? nullptr : &(*leaf)[table_index(page, 0)];
}

GlobalMutex pages_mutex{kRankOfPages};

// Ranges by their begin, with their bytes.
using PageRanges = std::multimap<const std::byte*, std::size_t>;

struct ParentsPages {
  PageRanges told;
  PageRanges past;  // of earlier processes; kept, because freeing takes locks
};

// Never destroyed: heaps may be closed while the program ends.
ParentsPages& parents_pages() REQUIRES(pages_mutex) {
  static ParentsPages& all = *new ParentsPages;
  return all;
}

void take_out_parents_pages() {
  const MutexLock lock(pages_mutex);
  ParentsPages& all = parents_pages();
  for (const auto& [begin, bytes] : all.told) set_owner({begin, bytes}, nullptr);
  all.past.merge(all.told);
}

// Registered after the handler of pages_mutex, which frees the mutex in the child.
[[maybe_unused]] const int pages_registered = [] {
  const MutexLock lock(pages_mutex);
  (void)parents_pages();  // made here: the handler must not allocate
  return pthread_atfork(nullptr, nullptr, take_out_parents_pages);
}();

}  // namespace

void tell_parents_pages(std::span<const std::byte> range) {
  const MutexLock lock(pages_mutex);
  parents_pages().told.emplace(range.data(), range.size());
}

void forget_parents_pages(std::span<const std::byte> range) {
  const MutexLock lock(pages_mutex);
  CHECK(parents_pages().told.erase(range.data()) == 1);
}

void set_owner(std::span<const std::byte> range, Heap* heap, PageUse use) {
  const auto begin = reinterpret_cast<std::uintptr_t>(range.data());
  const std::uintptr_t last = begin + range.size() - 1;
  CHECK(!range.empty() && last >> kAddressBits == 0);
  CHECK((reinterpret_cast<std::uintptr_t>(heap) & ~kHeapBits) == 0);
  for (std::uintptr_t page = begin >> kPageBits; page <= last >> kPageBits; ++page) {
    OwnerMiddle& middle = grown(owner_root[table_index(page, 2)]);
    grown(middle[table_index(page, 1)])[table_index(page, 0)] = entry_of(heap, use);
  }
}

void note_out(const void* object, PageUse use) {
  std::atomic<OwnerEntry>& entry = *find_entry(object);
  OwnerEntry there = entry.load();
  OwnerEntry next = 0;
  do {
    const bool agrees = there < kOneOut || use_in(there) == use;
    next = with_use(there + kOneOut, agrees ? use : PageUse::several);
  } while (!entry.compare_exchange_weak(there, next));
}

void note_back(const void* object) {
  std::atomic<OwnerEntry>& entry = *find_entry(object);
  OwnerEntry there = entry.load();
  OwnerEntry next = 0;
  do {
    CHECK(there >= kOneOut);
    next = there - kOneOut;
    if (next < kOneOut) next = with_use(next, PageUse::none);
  } while (!entry.compare_exchange_weak(there, next));
}

PageOwner owner_of(const void* address) {
  const std::atomic<OwnerEntry>* const entry = find_entry(address);
  if (entry == nullptr) return {};
  const OwnerEntry there = entry->load();
  return {reinterpret_cast<Heap*>(there & kHeapBits), use_in(there)};
}

}  // namespace headrace
