// SPDX-License-Identifier: Apache-2.0
#include "memory/heap/thread_cache.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

#include "memory/heap/gate.h"

namespace headrace {
namespace {

// Maximum objects of one class in a list: enough for threads that hand objects on. More would cost
// speed, since threads that take from one list get objects that share CPU cache lines.
constexpr std::size_t kSharedLimit = 64;
constexpr std::size_t kSharedBytes = std::size_t{1} << 19;

// The heap of each slot. Never destroyed: threads may end after statics are destroyed.
struct CacheSlots {
  Mutex mutex;
  std::array<const CacheSlot*, kCachedHeaps> taken GUARDED_BY(mutex) = {};
};
CacheSlots& cache_slots() {
  static CacheSlots& all = *new CacheSlots;
  return all;
}

std::uint64_t next_number() {
  static std::atomic<std::uint64_t> last = 0;
  return ++last;
}

// One entry per slot, made at first use. Not of the initial-exec TLS model, because then the shared
// library could not be loaded at run time.
using CacheTable = std::array<ThreadCache*, kCachedHeaps>;
constinit thread_local CacheTable my_caches{};
constinit thread_local bool my_caches_ended = false;

}  // namespace

// Owns the caches of one thread and ends with it.
class ThreadCaches {
 public:
  ~ThreadCaches() {
    my_caches_ended = true;
    const HeapGate gate;
    const MutexLock lock(cache_slots().mutex);
    for (std::size_t i = 0; i < kCachedHeaps; ++i) {
      const std::unique_ptr<ThreadCache> cache(std::exchange(my_caches[i], nullptr));
      const CacheSlot* const slot = cache_slots().taken[i];
      if (cache != nullptr && slot != nullptr && cache->heap_ == slot->number_) slot->empty(*cache);
    }
  }
};

CacheSlot::CacheSlot(void* pool, Release release)
    : number_(next_number()), pool_(pool), release_(release) {
  const HeapGate gate;
  const MutexLock lock(cache_slots().mutex);
  const auto free = std::ranges::find(cache_slots().taken, nullptr);
  if (free == cache_slots().taken.end()) return;
  *free = this;
  slot_ = static_cast<std::size_t>(free - cache_slots().taken.begin());
}

CacheSlot::~CacheSlot() {
  const HeapGate gate;
  const MutexLock lock(cache_slots().mutex);
  if (slot_) cache_slots().taken[*slot_] = nullptr;
}

ThreadCache* CacheSlot::cache() {
  if (!slot_) return nullptr;
  ThreadCache* const cache = my_caches[*slot_];
  return cache != nullptr && cache->heap_ == number_ ? cache : enter();
}

ThreadCache* CacheSlot::enter() {
  if (my_caches_ended) return nullptr;
  static thread_local ThreadCaches ends_with_thread;
  ThreadCache*& cache = my_caches[*slot_];
  if (cache == nullptr) cache = new ThreadCache;
  *cache = {};
  cache->heap_ = number_;
  return cache;
}

void* CacheSlot::pop_from_full(ThreadCache& cache, std::size_t size_class) {
  ThreadCache::Stacks& stacks = cache.of_[size_class];
  stacks.top = std::exchange(stacks.full, nullptr);
  if (stacks.top == nullptr) stacks.top = take_stack(shared_[size_class]);
  if (stacks.top == nullptr) return nullptr;
  stacks.depth = ThreadCache::kDepth;
  return cache.pop(size_class);
}

void CacheSlot::push_to_new(ThreadCache& cache, std::size_t size_class, void* object) {
  ThreadCache::Stacks& stacks = cache.of_[size_class];
  FreeObject* surplus = std::exchange(stacks.full, std::exchange(stacks.top, nullptr));
  stacks.depth = 0;
  cache.push(size_class, object);
  if (surplus == nullptr) return;
  SharedStacks& list = shared_[size_class];
  const HeapGate gate;
  {
    const MutexLock lock(list.mutex);
    if (list.stacks < kSharedLimit &&
        list.stacks * ThreadCache::kDepth * class_bytes(size_class) < kSharedBytes) {
      ++list.stacks;
      surplus->next = std::exchange(list.top, surplus);
      return;
    }
  }
  release_stack(surplus);
}

FreeObject* CacheSlot::take_stack(SharedStacks& list) {
  const HeapGate gate;
  const MutexLock lock(list.mutex);
  if (list.top == nullptr) return nullptr;
  --list.stacks;
  return std::exchange(list.top, list.top->next);
}

bool CacheSlot::release_stack(FreeObject* top) const {
  const bool any = top != nullptr;
  while (top != nullptr) release_(pool_, std::exchange(top, top->below));
  return any;
}

bool CacheSlot::empty() {
  ThreadCache* const mine = cache();
  bool any = mine != nullptr && empty(*mine);
  for (SharedStacks& list : shared_) {
    while (release_stack(take_stack(list))) any = true;
  }
  return any;
}

bool CacheSlot::empty(ThreadCache& cache) const {
  bool any = false;
  for (ThreadCache::Stacks& stacks : cache.of_) {
    const ThreadCache::Stacks emptied = std::exchange(stacks, {});
    any |= release_stack(emptied.top);
    any |= release_stack(emptied.full);
  }
  return any;
}

}  // namespace headrace
