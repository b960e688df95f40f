#include "heap/thread_cache.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

namespace headrace {
namespace {

// The most a pile keeps of one class: enough for threads that hand objects on, not more, since
// threads that take from one pile get objects that share lines of the CPUs' caches.
constexpr std::size_t kPileStacks = 64;
constexpr std::size_t kPileBytes = std::size_t{1} << 19;

// Who sits where. Never destroyed: threads may end after statics have gone.
struct Seats {
  Mutex mutex;
  std::array<const CacheSeat*, kCachedHeaps> taken GUARDED_BY(mutex) = {};
};
Seats& seats() {
  static Seats& all = *new Seats;
  return all;
}

std::uint64_t next_number() {
  static std::atomic<std::uint64_t> last = 0;
  return ++last;
}

// For each seat; made when first used. Not of the initial-exec model, with which the shared library
// could not be loaded at run time.
using CacheTable = std::array<ThreadCache*, kCachedHeaps>;
constinit thread_local CacheTable my_caches{};
constinit thread_local bool my_caches_ended = false;

}  // namespace

// Ends with its thread, and the thread's caches with it.
class ThreadCaches {
 public:
  ~ThreadCaches() {
    my_caches_ended = true;
    const MutexLock lock(seats().mutex);
    for (std::size_t i = 0; i < kCachedHeaps; ++i) {
      const std::unique_ptr<ThreadCache> cache(std::exchange(my_caches[i], nullptr));
      const CacheSeat* const seat = seats().taken[i];
      if (cache != nullptr && seat != nullptr && cache->heap_ == seat->number_) seat->empty(*cache);
    }
  }
};

CacheSeat::CacheSeat(void* pool, Release release)
    : number_(next_number()), pool_(pool), release_(release) {
  const MutexLock lock(seats().mutex);
  const auto free = std::ranges::find(seats().taken, nullptr);
  if (free == seats().taken.end()) return;
  *free = this;
  seat_ = static_cast<std::size_t>(free - seats().taken.begin());
}

CacheSeat::~CacheSeat() {
  const MutexLock lock(seats().mutex);
  if (seat_) seats().taken[*seat_] = nullptr;
}

ThreadCache* CacheSeat::cache() {
  if (!seat_) return nullptr;
  ThreadCache* const cache = my_caches[*seat_];
  return cache != nullptr && cache->heap_ == number_ ? cache : enter();
}

ThreadCache* CacheSeat::enter() {
  if (my_caches_ended) return nullptr;
  static thread_local ThreadCaches ends_with_thread;
  ThreadCache*& cache = my_caches[*seat_];
  if (cache == nullptr) cache = new ThreadCache;
  *cache = {};
  cache->heap_ = number_;
  return cache;
}

void* CacheSeat::pop_from_full(ThreadCache& cache, std::size_t size_class) {
  ThreadCache::Stacks& stacks = cache.of_[size_class];
  stacks.top = std::exchange(stacks.full, nullptr);
  if (stacks.top == nullptr) stacks.top = take_stack(piles_[size_class]);
  if (stacks.top == nullptr) return nullptr;
  stacks.depth = ThreadCache::kDepth;
  return cache.pop(size_class);
}

void CacheSeat::push_to_new(ThreadCache& cache, std::size_t size_class, void* object) {
  ThreadCache::Stacks& stacks = cache.of_[size_class];
  FreeObject* surplus = std::exchange(stacks.full, std::exchange(stacks.top, nullptr));
  stacks.depth = 0;
  cache.push(size_class, object);
  if (surplus == nullptr) return;
  Pile& pile = piles_[size_class];
  {
    const MutexLock lock(pile.mutex);
    if (pile.stacks < kPileStacks &&
        pile.stacks * ThreadCache::kDepth * class_bytes(size_class) < kPileBytes) {
      ++pile.stacks;
      surplus->next = std::exchange(pile.top, surplus);
      return;
    }
  }
  release_stack(surplus);
}

FreeObject* CacheSeat::take_stack(Pile& pile) {
  const MutexLock lock(pile.mutex);
  if (pile.top == nullptr) return nullptr;
  --pile.stacks;
  return std::exchange(pile.top, pile.top->next);
}

bool CacheSeat::release_stack(FreeObject* top) const {
  const bool any = top != nullptr;
  while (top != nullptr) release_(pool_, std::exchange(top, top->below));
  return any;
}

bool CacheSeat::empty() {
  ThreadCache* const mine = cache();
  bool any = mine != nullptr && empty(*mine);
  for (Pile& pile : piles_) {
    while (release_stack(take_stack(pile))) any = true;
  }
  return any;
}

bool CacheSeat::empty(ThreadCache& cache) const {
  bool any = false;
  for (ThreadCache::Stacks& stacks : cache.of_) {
    const ThreadCache::Stacks emptied = std::exchange(stacks, {});
    any |= release_stack(emptied.top);
    any |= release_stack(emptied.full);
  }
  return any;
}

}  // namespace headrace
