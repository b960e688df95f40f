// SPDX-License-Identifier: Apache-2.0
#include "headrace/eviction.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <new>

#include "cache/structures/zeroed_array.h"
#include "core/check.h"
#include "core/fail.h"
#include "core/intrusive_list.h"

namespace headrace {
namespace {

using Use = EvictionBlock::Use;

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

// One call of choose(). Each entry is unmarked if it is marked, else offered. Unmarked entries are
// offered in the second round, even if they were marked again, so that no droppable entry is left
// out. `effort` bounds the offers. An unmarking is paid for by the touch that marked, but all
// entries of a large cache may be marked: after kUnmark of them, marked entries are offered too.
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

// Keys of evicted blocks, each kept for about as many insertions as there are keys. A line of
// memory is a queue of its own: the newest key of a line displaces its oldest.
class Ghosts {
 public:
  // Makes space for one key per entry. It forgets all keys when it must grow, and remembers none
  // without memory.
  void fit(std::size_t entries) {
    if (entries <= count_ * kWays) return;
    count_ = 0;
    try {
      const std::size_t count = std::max<std::size_t>(std::bit_ceil(entries) / kWays, 1);
      lines_ = ZeroedArray<Line>(count);
      count_ = count;
    } catch (const std::bad_alloc&) {
    }
  }
  void add(std::uint64_t key) {
    if (count_ == 0) return;
    Line& line = line_of(key);
    std::ranges::copy_backward(line.begin(), line.end() - 1, line.end());
    line.front() = mark_of(key);
  }
  // Whether the key was there. Removes it.
  bool take(std::uint64_t key) {
    if (count_ == 0) return false;
    Line& line = line_of(key);
    auto* const at = std::ranges::find(line, mark_of(key));
    if (at == line.end()) return false;
    *at = kNone;
    return true;
  }

 private:
  static constexpr std::size_t kWays = 16;
  static constexpr std::uint32_t kNone = 0;
  using Line = std::array<std::uint32_t, kWays>;

  static std::uint32_t mark_of(std::uint64_t key) {
    return std::max(static_cast<std::uint32_t>(key >> 32), kNone + 1);
  }
  Line& line_of(std::uint64_t key) { return lines_[key & (count_ - 1)]; }

  ZeroedArray<Line> lines_;
  std::size_t count_ = 0;  // a power of two, or 0
};

class S3Fifo final : public EvictionOrder {
 public:
  void insert(EvictionLinks& entry, const EvictionBlock& block) override {
    const bool again = block.use == Use::again || ghosts_.take(block.key);
    entry.visited = false;
    entry.of_order = std::min(static_cast<std::uint8_t>(std::bit_width(block.bytes)), kSize);
    enter(entry, again ? kMain : kSmall);
  }

  void remove(EvictionLinks& entry) override {
    Queue& queue = queue_of(entry);
    queue.bytes -= bytes_of(entry);
    queue.entries.remove(entry);
  }

  void evict(EvictionLinks& entry, std::uint64_t key) override {
    if (&queue_of(entry) == &queues_[kSmall]) {
      ghosts_.fit(size());
      ghosts_.add(key);
    }
    remove(entry);
  }

  Use use_of(const EvictionLinks& entry) const override {
    return entry.of_order >> 6 == kMain ? Use::again : Use::fresh;
  }

  void touch(EvictionLinks& entry) override { entry.visited = true; }

  bool marks() const override { return true; }

  EvictionLinks* choose(const std::function<bool(EvictionLinks&)>& accept,
                        unsigned effort) override {
    Round round(size(), effort);
    for (Queue& queue : queues_) queue.refused = 0;
    patience_ = effort / 4;
    while (round.goes_on()) {
      const Number from = next_queue();
      EvictionLinks& entry = *queues_[from].entries.oldest();
      const bool offered = round.offers(entry);
      if (offered && accept(entry)) return &entry;
      remove(entry);
      enter(entry, offered ? from : kMain);
      queues_[from].refused += offered;
    }
    return nullptr;
  }

 private:
  enum Number : std::uint8_t { kSmall, kMain };
  // In of_order: the logarithm of the bytes, and above it the number of the queue.
  static constexpr std::uint8_t kSize = 63;
  static constexpr std::uint64_t kSmallShare = 10;

  struct Queue {
    ByAge entries;
    std::uint64_t bytes = 0;
    std::size_t refused = 0;  // in this choice

    bool has_more() const { return entries.size() > refused; }
  };

  void enter(EvictionLinks& entry, Number to) {
    entry.of_order = static_cast<std::uint8_t>((entry.of_order & kSize) | to << 6);
    queues_[to].bytes += bytes_of(entry);
    queues_[to].entries.push_newest(entry);
  }
  Queue& queue_of(const EvictionLinks& entry) { return queues_[entry.of_order >> 6]; }
  // Rounded up to a power of two: only the shares of the queues depend on it.
  static std::uint64_t bytes_of(const EvictionLinks& entry) {
    return std::uint64_t{1} << (entry.of_order & kSize);
  }
  std::size_t size() const {
    std::size_t sum = 0;
    for (const Queue& queue : queues_) sum += queue.entries.size();
    return sum;
  }
  // The queue of the next victim. If all blocks of a queue were refused, another queue.
  Number next_queue() {
    if (std::ranges::none_of(queues_, &Queue::has_more)) {
      for (Queue& queue : queues_) queue.refused = 0;
    }
    const Queue& small = queues_[kSmall];
    const bool is_large = small.bytes >= (small.bytes + queues_[kMain].bytes) / kSmallShare;
    // Many pinned blocks in it do not hide droppable ones in the other.
    if (is_large && small.has_more() && small.refused <= patience_) return kSmall;
    return queues_[kMain].has_more() ? kMain : kSmall;
  }

  std::array<Queue, 2> queues_;
  std::size_t patience_ = 0;  // refusals by each queue in this choice before another is tried
  Ghosts ghosts_;
};

class Sieve final : public EvictionOrder {
 public:
  void insert(EvictionLinks& entry, const EvictionBlock& block) override {
    entry.visited = block.use == Use::again;
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
  EvictionLinks* hand_ = nullptr;  // the next to examine; null: the oldest
};

class SecondChance final : public EvictionOrder {
 public:
  void insert(EvictionLinks& entry, const EvictionBlock& block) override {
    entry.visited = block.use == Use::again;
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

std::unique_ptr<EvictionOrder> s3_fifo() { return std::make_unique<S3Fifo>(); }

std::unique_ptr<EvictionOrder> sieve() { return std::make_unique<Sieve>(); }

std::unique_ptr<EvictionOrder> clock_order() { return std::make_unique<SecondChance>(); }

Result<EvictionFactory> eviction_order(std::string_view name) {
  if (name == "s3-fifo") return s3_fifo;
  if (name == "sieve") return sieve;
  if (name == "clock") return clock_order;
  return fail(ErrorCode::invalid, "no eviction order '{}'; there are s3-fifo, sieve, clock", name);
}

}  // namespace headrace
