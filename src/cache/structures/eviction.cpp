// SPDX-License-Identifier: Apache-2.0
#include "headrace/eviction.h"

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

// One choice of either order: each entry is unmarked if it is marked, else offered; those unmarked
// are offered the next time round, marked again or not, so that none that could go is left out.
// Offers are what `effort` bounds. Unmarking is paid for by the touch that marked, but all of a
// large cache may be marked: beyond kUnmark a marked entry is offered too.
class Round {
 public:
  Round(std::size_t entries, unsigned effort) : entries_(entries), effort_(effort) {}

  bool goes_on() const {
    return offered_ < effort_ && looked_ < entries_ + (unmarked_ > 0 ? entries_ : 0);
  }
  bool offers(EvictionLinks& entry) {
    if (looked_++ < entries_ && unmarked_ < kUnmark && entry.visited) {
      entry.visited = false;
      ++unmarked_;
      return false;
    }
    ++offered_;
    return true;
  }

 private:
  static constexpr unsigned kUnmark = 1024;

  const std::size_t entries_;
  const unsigned effort_;
  std::size_t looked_ = 0;
  unsigned offered_ = 0;
  unsigned unmarked_ = 0;
};

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
    Round round(entries_.size(), effort);
    while (round.goes_on()) {
      if (hand_ == nullptr) hand_ = entries_.oldest();
      EvictionLinks& entry = *hand_;
      if (round.offers(entry) && accept(entry)) return &entry;
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
    Round round(entries_.size(), effort);
    while (round.goes_on()) {
      EvictionLinks& entry = *entries_.oldest();
      if (round.offers(entry) && accept(entry)) return &entry;
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
