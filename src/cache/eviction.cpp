#include "headrace/eviction.h"

#include <algorithm>
#include <cstddef>

#include "core/check.h"

namespace headrace {
namespace {

// A doubly linked queue from newest to oldest, through the links in the entries.
class Queue {
 public:
  void push_newest(EvictionLinks& entry) {
    entry.newer = nullptr;
    entry.older = newest_;
    (newest_ == nullptr ? oldest_ : newest_->newer) = &entry;
    newest_ = &entry;
    ++size_;
  }

  void remove(EvictionLinks& entry) {
    CHECK(size_ > 0);
    (entry.newer == nullptr ? newest_ : entry.newer->older) = entry.older;
    (entry.older == nullptr ? oldest_ : entry.older->newer) = entry.newer;
    entry.newer = entry.older = nullptr;
    --size_;
  }

  EvictionLinks* oldest() const { return oldest_; }
  std::size_t size() const { return size_; }

 private:
  EvictionLinks* newest_ = nullptr;
  EvictionLinks* oldest_ = nullptr;
  std::size_t size_ = 0;
};

// Both orders look at each entry at most twice per choice: once to unmark it, once to offer it.
// Offers are what `effort` bounds. Unmarking is paid for by the touch that marked, but all of a
// large cache may be marked: beyond this many per choice a marked entry is offered too.
constexpr unsigned kUnmark = 1024;

class Sieve final : public EvictionOrder {
 public:
  void insert(EvictionLinks& entry) override {
    entry.visited = false;
    queue_.push_newest(entry);
  }

  void remove(EvictionLinks& entry) override {
    if (hand_ == &entry) hand_ = entry.newer;
    queue_.remove(entry);
  }

  void touch(EvictionLinks& entry) override { entry.visited = true; }

  EvictionLinks* choose(const std::function<bool(EvictionLinks&)>& accept,
                        unsigned effort) override {
    const std::size_t offers = std::min<std::size_t>(effort, queue_.size());
    unsigned spared = 0;
    for (std::size_t offered = 0; offered < offers;) {
      if (hand_ == nullptr) hand_ = queue_.oldest();
      EvictionLinks& entry = *hand_;
      if (entry.visited && spared < kUnmark) {
        entry.visited = false;
        ++spared;
      } else {
        if (accept(entry)) return &entry;
        ++offered;
      }
      hand_ = entry.newer;
    }
    return nullptr;
  }

 private:
  Queue queue_;
  EvictionLinks* hand_ = nullptr;  // next to look at; null: the oldest
};

class SecondChance final : public EvictionOrder {
 public:
  void insert(EvictionLinks& entry) override {
    entry.visited = false;
    queue_.push_newest(entry);
  }

  void remove(EvictionLinks& entry) override { queue_.remove(entry); }

  void touch(EvictionLinks& entry) override { entry.visited = true; }

  EvictionLinks* choose(const std::function<bool(EvictionLinks&)>& accept,
                        unsigned effort) override {
    const std::size_t offers = std::min<std::size_t>(effort, queue_.size());
    unsigned spared = 0;
    for (std::size_t offered = 0; offered < offers;) {
      EvictionLinks& entry = *queue_.oldest();
      if (entry.visited && spared < kUnmark) {
        entry.visited = false;
        ++spared;
      } else {
        if (accept(entry)) return &entry;
        ++offered;
      }
      queue_.remove(entry);
      queue_.push_newest(entry);
    }
    return nullptr;
  }

 private:
  Queue queue_;
};

}  // namespace

std::unique_ptr<EvictionOrder> sieve() { return std::make_unique<Sieve>(); }

std::unique_ptr<EvictionOrder> clock_order() { return std::make_unique<SecondChance>(); }

}  // namespace headrace
