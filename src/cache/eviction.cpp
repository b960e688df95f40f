#include "headrace/eviction.h"

#include <algorithm>
#include <cstddef>

#include "core/check.h"
#include "core/intrusive_list.h"

namespace headrace {
namespace {

// Entries from newest to oldest.
class ByAge {
 public:
  void push_newest(EvictionLinks& entry) {
    list_.push_front(entry);
    ++size_;
  }
  void remove(EvictionLinks& entry) {
    CHECK(size_ > 0);
    list_.remove(entry);
    --size_;
  }
  EvictionLinks* oldest() const { return list_.back(); }
  std::size_t size() const { return size_; }

 private:
  IntrusiveList<EvictionLinks, &EvictionLinks::older, &EvictionLinks::newer> list_;
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
    entries_.push_newest(entry);
  }

  void remove(EvictionLinks& entry) override {
    if (hand_ == &entry) hand_ = entry.newer;
    entries_.remove(entry);
  }

  void touch(EvictionLinks& entry) override { entry.visited = true; }

  bool marks() const override { return true; }

  EvictionLinks* choose(const std::function<bool(EvictionLinks&)>& accept,
                        unsigned effort) override {
    const std::size_t offers = std::min<std::size_t>(effort, entries_.size());
    unsigned spared = 0;
    for (std::size_t offered = 0; offered < offers;) {
      if (hand_ == nullptr) hand_ = entries_.oldest();
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
  ByAge entries_;
  EvictionLinks* hand_ = nullptr;  // next to look at; null: the oldest
};

class SecondChance final : public EvictionOrder {
 public:
  void insert(EvictionLinks& entry) override {
    entry.visited = false;
    entries_.push_newest(entry);
  }

  void remove(EvictionLinks& entry) override { entries_.remove(entry); }

  void touch(EvictionLinks& entry) override { entry.visited = true; }

  bool marks() const override { return true; }

  EvictionLinks* choose(const std::function<bool(EvictionLinks&)>& accept,
                        unsigned effort) override {
    const std::size_t offers = std::min<std::size_t>(effort, entries_.size());
    unsigned spared = 0;
    for (std::size_t offered = 0; offered < offers;) {
      EvictionLinks& entry = *entries_.oldest();
      if (entry.visited && spared < kUnmark) {
        entry.visited = false;
        ++spared;
      } else {
        if (accept(entry)) return &entry;
        ++offered;
      }
      entries_.remove(entry);
      entries_.push_newest(entry);
    }
    return nullptr;
  }

 private:
  ByAge entries_;
};

}  // namespace

std::unique_ptr<EvictionOrder> sieve() { return std::make_unique<Sieve>(); }

std::unique_ptr<EvictionOrder> clock_order() { return std::make_unique<SecondChance>(); }

}  // namespace headrace
