// SPDX-License-Identifier: Apache-2.0
#include "headrace/eviction.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <list>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

namespace headrace {
namespace {

using Use = EvictionBlock::Use;

struct Entry : EvictionLinks {
  int id = 0;
  bool pinned = false;
};

const std::vector<EvictionFactory> kOrders = {s3_fifo, sieve, clock_order};

std::uint64_t key(int id) { return std::uint64_t(id + 1) << 32; }

void insert(EvictionOrder& order, Entry& entry) {
  order.insert(entry, {.key = key(entry.id), .bytes = 4096});
}

Entry* choose(EvictionOrder& order, unsigned effort) {
  return static_cast<Entry*>(order.choose(
      [](EvictionLinks& links) { return !static_cast<Entry&>(links).pinned; }, effort));
}

// The papers' descriptions, on a std::list from old to new, as simple as possible.
struct Naive {
  struct Item {
    int id;
    bool visited = false;
  };
  std::list<Item> queue;
  std::optional<int> hand;  // SIEVE: the id at the hand
  bool is_sieve;

  void insert(int id, std::uint64_t /*bytes*/, Use use) {
    queue.push_back({id, use == Use::again});
  }
  void touch(int id) { find(id)->visited = true; }
  void evict(int id) { remove(id); }
  std::list<Item>::iterator find(int id) { return std::ranges::find(queue, id, &Item::id); }
  void remove(int id) {
    const auto at = find(id);
    if (hand == id)
      hand = std::next(at) == queue.end() ? std::nullopt : std::optional(std::next(at)->id);
    queue.erase(at);
  }
  std::optional<int> choose(const std::array<bool, 8>& pinned, unsigned effort) {
    std::size_t rounds = 1;  // a second one if anything was unmarked
    std::size_t left = effort;
    for (std::size_t looked = 0; left > 0 && looked < rounds * queue.size(); ++looked) {
      const auto at = is_sieve && hand ? find(*hand) : queue.begin();
      if (!at->visited) {
        if (!pinned[static_cast<std::size_t>(at->id)]) {
          if (is_sieve) hand = at->id;
          return at->id;
        }
        --left;
      } else {
        rounds = 2;
      }
      at->visited = false;
      if (is_sieve) {
        hand = std::next(at) == queue.end() ? std::nullopt : std::optional(std::next(at)->id);
      } else {
        queue.splice(queue.end(), queue, at);
      }
    }
    return std::nullopt;
  }
};

// Like above, with three queues.
struct NaiveS3 {
  struct Item {
    int id;
    std::uint64_t bytes;
    bool visited = false;
  };
  using Queue = std::list<Item>;  // from old to new
  static constexpr std::size_t kSmall = 0, kMain = 1;
  std::array<Queue, 2> queues;
  std::list<int> ghosts = std::list<int>(16, -1);

  static std::uint64_t bytes(const Queue& queue) {
    std::uint64_t sum = 0;
    for (const Item& item : queue) sum += std::bit_ceil(item.bytes + 1);
    return sum;
  }
  void insert(int id, std::uint64_t bytes, Use use) {
    std::size_t to = use == Use::again ? kMain : kSmall;
    const auto ghost = std::ranges::find(ghosts, id);
    if (use == Use::fresh && ghost != ghosts.end()) {
      *ghost = -1;
      to = kMain;
    }
    queues[to].push_back({.id = id, .bytes = bytes});
  }
  std::pair<Queue*, Queue::iterator> find(int id) {
    for (Queue& queue : queues) {
      const auto at = std::ranges::find(queue, id, &Item::id);
      if (at != queue.end()) return {&queue, at};
    }
    throw std::logic_error("not there");
  }
  void touch(int id) { find(id).second->visited = true; }
  void remove(int id) {
    const auto [queue, at] = find(id);
    queue->erase(at);
  }
  void evict(int id) {
    if (find(id).first == &queues[kSmall]) {
      ghosts.push_front(id);
      ghosts.pop_back();
    }
    remove(id);
  }
  std::optional<int> choose(const std::array<bool, 8>& pinned, unsigned effort) {
    std::array<std::size_t, 2> refused{};
    const std::size_t patience = effort / 4;
    const auto more = [&](std::size_t i) { return refused[i] < queues[i].size(); };
    const std::size_t all = queues[0].size() + queues[1].size();
    std::size_t rounds = 1;
    for (std::size_t looked = 0; effort > 0 && looked < rounds * all; ++looked) {
      if (!more(kSmall) && !more(kMain)) refused = {};
      const std::uint64_t small = bytes(queues[kSmall]);
      const bool is_large = small >= (small + bytes(queues[kMain])) / 10;
      std::size_t from = more(kMain) ? kMain : kSmall;
      if (is_large && more(kSmall) && refused[kSmall] <= patience) from = kSmall;
      const Item item = queues[from].front();
      const bool spared = item.visited && looked < all;
      if (!spared && !pinned[static_cast<std::size_t>(item.id)]) return item.id;
      queues[from].pop_front();
      if (spared) {
        rounds = 2;
      } else {
        --effort;
        ++refused[from];
      }
      queues[spared ? kMain : from].push_back(
          {.id = item.id, .bytes = item.bytes, .visited = item.visited && !spared});
    }
    return std::nullopt;
  }
};

template <class Model>
void against_naive(EvictionOrder& order, Model naive) {
  std::array<Entry, 8> entries;
  std::array<bool, 8> in{};
  std::array<bool, 8> pinned{};
  for (int step = *rc::gen::inRange(1, 200); step > 0; --step) {
    const int id = *rc::gen::inRange(0, 8);
    const auto i = static_cast<std::size_t>(id);
    Entry& entry = entries[i];
    entry.id = id;
    switch (*rc::gen::inRange(0, 6)) {
      case 0:
      case 1:
        if (!in[i]) {
          const std::uint64_t bytes = *rc::gen::element(100U, 5000U, 100'000U);
          const Use use = *rc::gen::element(Use::fresh, Use::fresh, Use::again);
          order.insert(entry, {.key = key(id), .bytes = bytes, .use = use});
          naive.insert(id, bytes, use);
          in[i] = true;
        }
        break;
      case 2:
        if (in[i]) {
          order.touch(entry);
          naive.touch(id);
        }
        break;
      case 3:
        if (in[i]) {
          order.remove(entry);
          naive.remove(id);
          in[i] = false;
        }
        break;
      case 4: entry.pinned = pinned[i] = !pinned[i]; break;
      default: {
        const auto effort = *rc::gen::inRange(0U, 10U);
        Entry* const victim = choose(order, effort);
        const auto expected = naive.choose(pinned, effort);
        RC_ASSERT((victim != nullptr) == expected.has_value());
        if (victim == nullptr) break;
        RC_ASSERT(victim->id == *expected);
        order.evict(*victim, key(victim->id));
        naive.evict(victim->id);
        in[static_cast<std::size_t>(victim->id)] = false;
      }
    }
  }
}

RC_GTEST_PROP(S3FifoTest, ChoosesAsNaiveListsDo, ()) { against_naive(*s3_fifo(), NaiveS3{}); }

RC_GTEST_PROP(SieveTest, ChoosesAsANaiveListDoes, ()) {
  against_naive(*sieve(), Naive{.queue = {}, .hand = {}, .is_sieve = true});
}

RC_GTEST_PROP(ClockOrderTest, ChoosesAsANaiveListDoes, ()) {
  against_naive(*clock_order(), Naive{.queue = {}, .hand = {}, .is_sieve = false});
}

TEST(EvictionOrderTest, HasAName) {
  for (const char* name : {"s3-fifo", "sieve", "clock"}) {
    const auto order = eviction_order(name);
    ASSERT_TRUE(order) << name;
    EXPECT_NE((*order)(), nullptr);
  }
  const auto unknown = eviction_order("lru");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().message, "no eviction order 'lru'; there are s3-fifo, sieve, clock");
}

TEST(EvictionOrderTest, OnlyPins_AreRefusedAfterTheEffort) {
  for (const EvictionFactory& make : kOrders) {
    const auto order = make();
    std::vector<Entry> entries(100);
    for (Entry& entry : entries) insert(*order, entry);
    unsigned offered = 0;
    const auto no = [&](EvictionLinks&) {
      ++offered;
      return false;
    };
    EXPECT_EQ(order->choose(no, 30), nullptr);
    EXPECT_EQ(offered, 30u);
    EXPECT_EQ(order->choose(no, 1000), nullptr);
    EXPECT_EQ(offered, 130u);  // each at most once per choice
    EXPECT_EQ(make()->choose(no, 30), nullptr);
  }
}

}  // namespace
}  // namespace headrace
