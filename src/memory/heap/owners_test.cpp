// SPDX-License-Identifier: Apache-2.0
#include "memory/heap/owners.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "memory/heap/heap_testing.h"

namespace headrace {
namespace {

// Addresses without a mapping: only looked up, never read.
const std::byte* address(std::uintptr_t value) { return reinterpret_cast<const std::byte*>(value); }
Heap* heap_number(std::uintptr_t number) { return reinterpret_cast<Heap*>(number * 64); }

constexpr std::uintptr_t kPages = 4096;

TEST(Owners, AreThoseOfTheWholePagesOfARange) {
  // Across the border of two tables.
  const std::byte* const begin = address((std::uintptr_t{5} << 36) - 3 * kPages);
  set_owner({begin + 100, 6 * kPages}, heap_number(1));
  EXPECT_EQ(owner_of(begin - 1).heap, nullptr);
  for (std::uintptr_t at = 0; at < 7 * kPages; at += kPages / 4) {
    EXPECT_EQ(owner_of(begin + at).heap, heap_number(1)) << at;
  }
  EXPECT_EQ(owner_of(begin + 7 * kPages).heap, nullptr);
  set_owner({begin, 7 * kPages}, nullptr);
  EXPECT_EQ(owner_of(begin + kPages).heap, nullptr);
}

TEST(Owners, AreNoneForAddressesThatNothingHas) {
  EXPECT_EQ(owner_of(nullptr).heap, nullptr);
  EXPECT_EQ(owner_of(address(~std::uintptr_t{0})).heap, nullptr);
  EXPECT_EQ(owner_of(address(std::uintptr_t{1} << 48)).heap, nullptr);
  const int local = 0;
  EXPECT_EQ(owner_of(&local).heap, nullptr);
}

TEST(Owners, AreSetByManyThreadsAtOnce) {
  std::vector<std::thread> threads;
  for (std::uintptr_t t = 1; t <= 4; ++t) {
    threads.emplace_back([t] {
      for (std::uintptr_t i = 0; i < 200; ++i) {
        // New tables in each round, needed by all threads.
        const std::byte* const begin = address((i << 24) + (std::uintptr_t{9} << 40) + t * kPages);
        set_owner({begin, kPages}, heap_number(t));
        EXPECT_EQ(owner_of(begin).heap, heap_number(t));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::uintptr_t i = 0; i < 200; ++i) {
    for (std::uintptr_t t = 1; t <= 4; ++t) {
      const std::byte* const begin = address((i << 24) + (std::uintptr_t{9} << 40) + t * kPages);
      EXPECT_EQ(owner_of(begin).heap, heap_number(t));
      set_owner({begin, kPages}, nullptr);
    }
  }
}

TEST(Owners, KnowWhatAPageIsUsedForWhileObjectsAreOut) {
  const std::byte* const begin = address(std::uintptr_t{7} << 38);
  const auto use = [&](std::uintptr_t page) { return owner_of(begin + page * kPages + 48).use; };
  set_owner({begin, 3 * kPages}, heap_number(3));
  EXPECT_EQ(use(0), PageUse::none);
  note_out(begin + 16, use_of_class(19));
  note_out(begin + 1024, use_of_class(19));
  EXPECT_EQ(use(0), use_of_class(19));
  EXPECT_EQ(owner_of(begin).size_class(), 19U);
  note_back(begin + 16);
  EXPECT_EQ(use(0), use_of_class(19)) << "one is still out";

  note_out(begin + kPages, use_of_class(0));
  note_out(begin + kPages + 64, use_of_class(1));
  note_out(begin + kPages + 80, use_of_class(0));
  EXPECT_EQ(use(1), PageUse::several);
  note_back(begin + kPages + 64);
  EXPECT_EQ(use(1), PageUse::several) << "which of them are left is not known";
  note_back(begin + kPages);
  note_back(begin + kPages + 80);
  EXPECT_EQ(use(1), PageUse::none);
  note_out(begin + kPages, use_of_class(7));
  EXPECT_EQ(use(1), use_of_class(7)) << "what was there before is forgotten";

  EXPECT_EQ(use(2), PageUse::none);
  for (std::uintptr_t page = 0; page < 3; ++page) {
    EXPECT_EQ(owner_of(begin + page * kPages).heap, heap_number(3));
    EXPECT_EQ(owner_of(begin + page * kPages).has_class(), page != 2);
  }
  set_owner({begin, 3 * kPages}, heap_number(4), PageUse::large);
  EXPECT_EQ(use(1), PageUse::large) << "new owners begin anew";
  set_owner({begin, 3 * kPages}, nullptr);
}

TEST(Owners, CountObjectsOnlyWhereOneIsOut) {
  const std::byte* const begin = address(std::uintptr_t{8} << 38);
  set_owner({begin, kPages}, heap_number(1));
  for (int i = 0; i < 512; ++i) note_out(begin + 8 * i, use_of_class(0));
  for (int i = 0; i < 512; ++i) note_back(begin + 8 * i);
  EXPECT_EQ(owner_of(begin).heap, heap_number(1));
  EXPECT_DEATH(note_back(begin), "CHECK failed");
  set_owner({begin, kPages}, nullptr);
}

// Every thread finds the use that it noted, or `several`; in the end nothing is left.
TEST(Owners, AreNotedByThreadsThatContradictEachOther) {
  const std::byte* const begin = address(std::uintptr_t{11} << 38);
  for (std::uintptr_t page = 0; page < 500; ++page) {
    const std::byte* const at = begin + page * kPages;
    set_owner({at, kPages}, heap_number(5));
    std::atomic<int> ready = 0;
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < 2; ++t) {
      threads.emplace_back([&, t] {
        for (++ready; ready < 2;) std::this_thread::yield();
        note_out(at + 16 * t, use_of_class(t));
        const PageUse found = owner_of(at).use;
        EXPECT_TRUE(found == use_of_class(t) || found == PageUse::several);
        if (t == 0) note_back(at);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(owner_of(at).use == use_of_class(1) || owner_of(at).use == PageUse::several);
    note_back(at + 16);
    EXPECT_EQ(owner_of(at).use, PageUse::none);
    set_owner({at, kPages}, nullptr);
  }
}

TEST(Owners, OutOfWhatMmapGivesEndTheProgram) {
  EXPECT_DEATH(set_owner({address(std::uintptr_t{1} << 48), 1}, nullptr), "CHECK failed");
}

}  // namespace
}  // namespace headrace
