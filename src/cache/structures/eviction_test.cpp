// SPDX-License-Identifier: Apache-2.0
#include "headrace/eviction.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <list>
#include <optional>

#include "headrace/random.h"

namespace headrace {
namespace {

struct Entry : EvictionLinks {
  int id = 0;
  bool pinned = false;
};

Entry* choose(EvictionOrder& order, unsigned effort = 64) {
  return static_cast<Entry*>(order.choose(
      [](EvictionLinks& links) { return !static_cast<Entry&>(links).pinned; }, effort));
}

// The papers' descriptions, on a std::list from old to new, without any cleverness.
struct Naive {
  struct Item {
    int id;
    bool visited = false;
  };
  std::list<Item> queue;
  std::optional<int> hand;  // SIEVE: the id it points at
  bool is_sieve;

  std::list<Item>::iterator find(int id) { return std::ranges::find(queue, id, &Item::id); }
  void remove(int id) {
    const auto at = find(id);
    if (hand == id)
      hand = std::next(at) == queue.end() ? std::nullopt : std::optional(std::next(at)->id);
    queue.erase(at);
  }
  std::optional<int> choose(const std::array<bool, 8>& pinned, unsigned effort) {
    std::size_t rounds = 1;  // a second one if there was anything to unmark
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

void against_naive(EvictionOrder& order, bool is_sieve) {
  std::array<Entry, 8> entries;
  std::array<bool, 8> in{};
  std::array<bool, 8> pinned{};
  Naive naive{.queue = {}, .hand = {}, .is_sieve = is_sieve};
  for (int step = *rc::gen::inRange(1, 200); step > 0; --step) {
    const int id = *rc::gen::inRange(0, 8);
    const auto i = static_cast<std::size_t>(id);
    Entry& entry = entries[i];
    entry.id = id;
    switch (*rc::gen::inRange(0, 6)) {
      case 0:
      case 1:
        if (!in[i]) {
          order.insert(entry);
          naive.queue.push_back({id});
          in[i] = true;
        }
        break;
      case 2:
        if (in[i]) {
          order.touch(entry);
          naive.find(id)->visited = true;
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
        order.remove(*victim);
        naive.remove(victim->id);
        in[static_cast<std::size_t>(victim->id)] = false;
      }
    }
  }
}

RC_GTEST_PROP(SieveTest, ChoosesAsANaiveListDoes, ()) { against_naive(*sieve(), true); }

RC_GTEST_PROP(ClockOrderTest, ChoosesAsANaiveListDoes, ()) { against_naive(*clock_order(), false); }

TEST(EvictionOrderTest, AFullHouseOfPinsIsRefusedAfterTheEffort) {
  for (const EvictionFactory& make : {EvictionFactory(sieve), EvictionFactory(clock_order)}) {
    const auto order = make();
    std::vector<Entry> entries(100);
    for (Entry& entry : entries) order->insert(entry);
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

// Hits of a cache of `size` in which a few hot blocks are used between long scans.
double hit_ratio(EvictionOrder& order, std::size_t size) {
  constexpr int kHot = 50;
  std::vector<Entry> entries(20000);
  std::vector<bool> in(entries.size());
  std::size_t count = 0;
  std::size_t hits = 0;
  std::size_t hot_accesses = 0;
  Random random(7);
  int next_cold = kHot;
  for (int step = 0; step < 30000; ++step) {
    const bool hot = random.chance(0.5);
    const auto i = static_cast<std::size_t>(hot ? static_cast<int>(random.below(kHot)) : next_cold);
    if (!hot && ++next_cold == static_cast<int>(entries.size())) next_cold = kHot;
    hot_accesses += hot;
    if (in[i]) {
      hits += hot;
      order.touch(entries[i]);
      continue;
    }
    if (count == size) {
      Entry* const victim = choose(order);
      order.remove(*victim);
      in[static_cast<std::size_t>(victim - entries.data())] = false;
      --count;
    }
    order.insert(entries[i]);
    in[i] = true;
    ++count;
  }
  return static_cast<double>(hits) / static_cast<double>(hot_accesses);
}

TEST(SieveTest, AScanDoesNotWashOutWhatIsUsed) {
  // 60 places for 50 hot blocks and an endless scan, half of the accesses each. In FIFO order a hot
  // block would live 60 misses; SIEVE keeps it.
  EXPECT_GT(hit_ratio(*sieve(), 60), 0.95);
  EXPECT_GT(hit_ratio(*sieve(), 60), hit_ratio(*clock_order(), 60));
}

// Wherever the hand stands: what is marked is offered once it was unmarked.
TEST(EvictionTest, TheOneThatMayGoIsFoundAmongOthersAlsoWhenItIsMarked) {
  for (const EvictionFactory& make : {EvictionFactory(sieve), EvictionFactory(clock_order)}) {
    for (std::size_t free = 0; free < 4; ++free) {
      const auto order = make();
      std::array<Entry, 4> entries;
      for (Entry& entry : entries) {
        entry.pinned = true;
        order->insert(entry);
      }
      for (int turn = 0; turn < 4; ++turn) {
        EXPECT_EQ(choose(*order, 1), nullptr);  // the hand goes on by one
        entries[free].pinned = false;
        order->touch(entries[free]);
        EXPECT_EQ(choose(*order, 64), &entries[free]) << free << " " << turn;
        entries[free].pinned = true;
      }
    }
  }
}

}  // namespace
}  // namespace headrace
