// SPDX-License-Identifier: Apache-2.0
#include "headrace/malloc.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "headrace/buffer.h"
#include "memory/heap/heap_testing.h"

extern "C" int headrace_test_from_c(void);

namespace headrace {
namespace {

const std::vector<headrace_kind> kAllKinds = [] {
  std::vector<headrace_kind> kinds;
  for (int i = 0; i <= HEADRACE_CXL_FIRST_TOUCH; ++i) kinds.push_back(headrace_kind(i));
  return kinds;
}();

// The kind of memory that headrace_kind demands strictly; nullopt: none.
std::optional<NodeKind> strictly(headrace_kind kind) {
  switch (kind) {
    case HEADRACE_HBM:
    case HEADRACE_HBM_INTERLEAVE:
    case HEADRACE_HBM_FIRST_TOUCH: return NodeKind::hbm;
    case HEADRACE_CXL:
    case HEADRACE_CXL_INTERLEAVE:
    case HEADRACE_CXL_FIRST_TOUCH: return NodeKind::cxl;
    default: return std::nullopt;
  }
}

bool there_is(NodeKind kind) { return !this_host().of_kind(kind).empty(); }

TEST(Malloc, WorksFromC) { EXPECT_EQ(headrace_test_from_c(), 0); }

TEST(Malloc, HasTheKindsThatTheMachineHas) {
  for (const headrace_kind kind : kAllKinds) {
    const auto wanted = strictly(kind);
    const bool expected = !wanted || there_is(*wanted);
    EXPECT_EQ(headrace_check_available(kind), expected ? 0 : ENOMEM) << kind;
    errno = 0;
    void* const object = headrace_malloc(kind, 100);
    EXPECT_EQ(object != nullptr, expected) << kind;
    EXPECT_EQ(errno, expected ? 0 : ENOMEM);
    headrace_free(object);
  }
  if (!there_is(NodeKind::hbm)) {
    EXPECT_EQ(headrace_malloc(HEADRACE_HBM, 1), nullptr);
    EXPECT_NE(std::string(headrace_last_error()).find("no hbm node here"), std::string::npos)
        << headrace_last_error();
  }
}

TEST(Malloc, PutsMemoryOnNodesOfItsKind) {
  for (const std::size_t size : {100U, 10'000'000U}) {
    auto* const object = static_cast<std::byte*>(headrace_malloc(HEADRACE_DRAM, size));
    const Residency residency = where({object, size}).value();
    EXPECT_EQ(residency.absent, 0U);
    for (const auto& [node, pages] : residency.pages) {
      EXPECT_EQ(this_host().find(node)->kind, NodeKind::dram);
    }
    headrace_free(object);
  }
}

// The object's heap is of the kind, though perhaps of another thread's node.
TEST(Malloc, ReallocOfItsKindStays) {
  void* object = headrace_malloc(HEADRACE_DRAM, 1000);
  ASSERT_NE(object, nullptr);
  const Heap* const heap = Heap::owner(object);
  object = headrace_realloc(HEADRACE_DRAM, object, 2000);
  EXPECT_EQ(Heap::owner(object), heap);
  object = headrace_realloc(HEADRACE_DRAM_INTERLEAVE, object, 2000);
  EXPECT_NE(Heap::owner(object), heap);
  headrace_free(object);
}

TEST(Malloc, ByFirstTouchTouchesNothingItself) {
  auto* const object = static_cast<std::byte*>(headrace_malloc(HEADRACE_DRAM_FIRST_TOUCH, 4 << 20));
  ASSERT_NE(object, nullptr) << headrace_last_error();
  const std::span<const std::byte> bytes(object, 4 << 20);
  EXPECT_EQ(where(bytes)->pages.size(), 0U);
  object[0] = std::byte{1};
  EXPECT_EQ(where(bytes)->pages.size(), 1U);
  headrace_free(object);
}

TEST(Malloc, FindsTheOwnerOfWhateverIsFreed) {
  std::vector<void*> objects;
  for (const headrace_kind kind : kAllKinds) {
    if (headrace_check_available(kind) != 0) continue;
    for (const std::size_t size : {0U, 10U, 5000U, 300'000U, 3'000'000U}) {
      void* const object = headrace_malloc(kind, size);
      ASSERT_NE(object, nullptr) << headrace_last_error();
      EXPECT_GE(headrace_usable_size(object), size);
      objects.push_back(object);
    }
  }
  objects.push_back(std::malloc(100));
  objects.push_back(nullptr);
  EXPECT_EQ(headrace_usable_size(nullptr), 0U);
  for (void* const object : objects) headrace_free(object);
}

TEST(Malloc, MovesBetweenKindsWithContents) {
  void* object = std::malloc(500);
  fill(object, 500, 3);
  for (const headrace_kind kind : {HEADRACE_DRAM, HEADRACE_DEFAULT, HEADRACE_LARGEST}) {
    object = headrace_realloc(kind, object, 600);
    ASSERT_NE(object, nullptr);
    EXPECT_EQ(Heap::owner(object) == nullptr, kind == HEADRACE_DEFAULT);
    EXPECT_TRUE(filled(object, 500, 3));
  }
  EXPECT_EQ(headrace_realloc(HEADRACE_DRAM, object, 0), nullptr);
  object = headrace_realloc(HEADRACE_DRAM, nullptr, 10);
  EXPECT_NE(object, nullptr);
  headrace_free(object);
}

TEST(Malloc, ZeroesWhatCallocGives) {
  for (const headrace_kind kind : {HEADRACE_DEFAULT, HEADRACE_DRAM}) {
    for (const std::size_t size : {1U, 1000U, 200'000U, 4'000'000U}) {
      void* const dirty = headrace_malloc(kind, size);
      fill(dirty, size, 1);
      headrace_free(dirty);
      auto* const object = static_cast<unsigned char*>(headrace_calloc(kind, 1, size));
      for (std::size_t i = 0; i < size; ++i) ASSERT_EQ(object[i], 0);
      headrace_free(object);
    }
    EXPECT_EQ(headrace_calloc(kind, SIZE_MAX / 2, 3), nullptr);
    EXPECT_EQ(errno, ENOMEM);
  }
}

TEST(Malloc, AlignsAsPosixMemalign) {
  for (const headrace_kind kind : {HEADRACE_DEFAULT, HEADRACE_DRAM}) {
    for (std::size_t align = sizeof(void*); align <= (2_MiB).value; align *= 2) {
      void* object = nullptr;
      ASSERT_EQ(headrace_posix_memalign(kind, &object, align, 100), 0);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(object) % align, 0U);
      headrace_free(object);
    }
    void* untouched = this;
    errno = 0;
    for (const std::size_t align : {0U, 1U, 4U, 24U}) {
      EXPECT_EQ(headrace_posix_memalign(kind, &untouched, align, 100), EINVAL);
    }
    // The sanitizers end a program that asks malloc for this many bytes.
    if (kind != HEADRACE_DEFAULT) {
      EXPECT_EQ(headrace_posix_memalign(kind, &untouched, 64, std::size_t{1} << 60), ENOMEM);
    }
    EXPECT_EQ(untouched, this);
    EXPECT_EQ(errno, 0);
  }
}

TEST(Malloc, KnowsItsKindsByName) {
  headrace_kind kind = HEADRACE_DRAM;
  for (const auto& [name, expected] : {std::pair{"hbm_preferred", HEADRACE_HBM_PREFERRED},
                                       {"largest", HEADRACE_LARGEST},
                                       {"default", HEADRACE_DEFAULT}}) {
    EXPECT_EQ(headrace_parse_kind(name, &kind), 0);
    EXPECT_EQ(kind, expected);
  }
  EXPECT_EQ(headrace_parse_kind("hbw", &kind), EINVAL);
}

TEST(Malloc, RefusesWhatIsNoKind) {
  const auto kind = static_cast<headrace_kind>(99);
  EXPECT_EQ(headrace_malloc(kind, 1), nullptr);
  EXPECT_EQ(headrace_check_available(kind), ENOMEM);
}

TEST(Malloc, OpensItsKindsOnceForAllThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 2000; ++i) {
        const headrace_kind kind = kAllKinds[static_cast<std::size_t>(i) % kAllKinds.size()];
        void* const object = headrace_malloc(kind, 200);
        if (object != nullptr) fill(object, 200, 9);
        headrace_free(object);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Destructors of statics, after main, can still use their memory.
TEST(Malloc, LastsUntilTheProcessIsGone) {
  const pid_t child = ::fork();
  if (child == 0) {
    static void* object = headrace_malloc(HEADRACE_DRAM, 100'000);
    fill(object, 100'000, 5);
    std::atexit([] {
      const bool good = filled(object, 100'000, 5);
      headrace_free(object);
      object = headrace_malloc(HEADRACE_DRAM, 1000);
      fill(object, 1000, 6);
      ::_exit(good && filled(object, 1000, 6) ? 0 : 1);
    });
    std::exit(2);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace headrace
