// SPDX-License-Identifier: Apache-2.0
// The promises of every source, tested for each kind.
#include "tier/source.h"

#include <gtest/gtest.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <new>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "support/child.h"
#include "tests/support/bytes.h"
#include "tests/support/expect.h"
#include "tier/planted_testing.h"

namespace headrace {
namespace {

using std::chrono::milliseconds;
using test::Access;
using test::expect_refused;
using test::kPage;
using test::Trackable;

class Sources : public testing::TestWithParam<HotnessKind> {
 protected:
  void SetUp() override {
    if (const auto there = open_hotness(GetParam()); !there) {
      GTEST_SKIP() << there.error().message;
    }
  }
  std::unique_ptr<HotnessSource> open(Nanoseconds interval = {}) {
    return open_hotness(GetParam(), {.chunk = 64_KiB, .least_interval = interval, .clock = &clock_})
        .value();
  }
  std::vector<Access> accesses() const {
    if (!traits_of(GetParam()).sees_reads) return {Access::write};
    return {Access::read, Access::write, Access::mixed};
  }
  ManualClock clock_;
};

INSTANTIATE_TEST_SUITE_P(All, Sources, testing::ValuesIn(kHotnessKinds),
                         [](const auto& kind) { return std::string(to_string(kind.param)); });

TEST_P(Sources, FindHotSetsThatArePlanted) {
  const Trackable memory(GetParam(), 32_MiB);
  std::mt19937_64 random(6);
  for (const Access how : accesses()) {
    for (const double share : {0.1, 0.5}) {
      for (const std::size_t area : {std::size_t{64}, std::size_t{1}}) {
        if (area == 1 && !traits_of(GetParam()).by_page) continue;
        const auto source = open();
        ASSERT_TRUE(source->track(memory.bytes()));
        Hotness hotness({.half_life = std::chrono::seconds{4}});
        const auto hot = test::plant(memory.count(), share, area, random);
        test::use(*source, clock_, hotness, memory.bytes(), hot, how, random);
        EXPECT_EQ(test::found(hotness, memory.bytes(), hot, random), 1)
            << share << " in areas of " << area << " pages";
      }
    }
  }
}

TEST_P(Sources, EarlierOrUntrackedTouches_AreNotSeen) {
  const Trackable memory(GetParam(), 4_MiB);
  const Trackable other(GetParam(), 4_MiB);
  const auto source = open();
  EXPECT_TRUE(source->look()->touches.empty());
  ASSERT_TRUE(source->track(memory.bytes()));
  for (std::size_t page = 0; page < other.count(); ++page) {
    test::access_page(other.bytes(), page, Access::write);
  }
  clock_.advance(milliseconds{7});
  const auto sample = source->look();
  ASSERT_TRUE(sample);
  EXPECT_TRUE(sample->touches.empty());
  EXPECT_EQ(sample->covered, milliseconds{7});
  EXPECT_EQ(sample->unseen, 0_B);
  EXPECT_EQ(sample->why_unseen, "");
}

TEST_P(Sources, UnmappedMemory_IsRefused) {
  const auto source = open();
  const Trackable memory(GetParam(), 1_MiB);
  expect_refused(source->track({}), ErrorCode::invalid, "no bytes");
  expect_refused(source->track(memory.bytes().subspan(1, kPage)), ErrorCode::invalid,
                 "whole pages");
  expect_refused(source->track(memory.bytes().first(kPage + 1)), ErrorCode::invalid, "whole pages");
  Trackable gone(GetParam(), 1_MiB);
  gone.unmap(1, 1);
  expect_refused(source->track(gone.bytes()), ErrorCode::invalid, "no memory at");
  EXPECT_TRUE(source->track(gone.pages(0, 1))) << "nothing is left of the refusal";
}

TEST_P(Sources, TrackedMemory_IsRefused) {
  const Trackable memory(GetParam(), 1_MiB);
  const auto source = open();
  ASSERT_TRUE(source->track(memory.pages(16, 32)));
  expect_refused(source->track(memory.bytes()), ErrorCode::invalid, "already");
  expect_refused(source->track(memory.pages(47, 1)), ErrorCode::invalid, "already");
  if (GetParam() != HotnessKind::written) {
    if (const auto other = open_hotness(HotnessKind::written)) {
      expect_refused((*other)->track(memory.pages(16, 1)), ErrorCode::invalid, "already");
    }
  }
  ASSERT_TRUE(source->track(memory.pages(64, 16)));
  expect_refused(source->untrack(memory.pages(16, 16)), ErrorCode::invalid, "does not track");
  ASSERT_TRUE(source->untrack(memory.pages(16, 32)));
  expect_refused(source->untrack(memory.pages(16, 32)), ErrorCode::invalid, "does not track");
  EXPECT_TRUE(source->track(memory.pages(0, 64)));
}

TEST_P(Sources, UnmappedPart_IsReportedAsUnseen) {
  Trackable memory(GetParam(), 1_MiB);
  Trackable other(GetParam(), 1_MiB);
  const auto source = open();
  ASSERT_TRUE(source->track(memory.bytes()));
  ASSERT_TRUE(source->track(other.bytes()));
  memory.unmap(64, 16);
  for (int look = 0; look < 2; ++look) {
    for (std::size_t page = 0; page < 16; ++page) {
      test::access_page(other.bytes(), page, Access::write);
    }
    const auto sample = source->look();
    ASSERT_TRUE(sample) << sample.error().message;
    EXPECT_EQ(sample->unseen.value, 16 * kPage);
    EXPECT_NE(sample->why_unseen.find("no longer mapped"), std::string::npos);
    EXPECT_EQ(sample->touches.size(), 1u);
  }
  other.unmap(0, other.count());
  // Other memory may have taken a hole of this size.
  EXPECT_GT(source->look()->unseen.value, 16 * kPage);
  EXPECT_TRUE(source->untrack(memory.bytes()));
  EXPECT_TRUE(source->untrack(other.bytes()));
}

TEST_P(Sources, LetMemoryGoBeforeThemAndBeTrackedAnew) {
  const auto source = open();
  std::optional<Trackable> memory(std::in_place, GetParam(), 1_MiB);
  const auto bytes = memory->bytes();
  ASSERT_TRUE(source->track(bytes));
  memory.reset();
  EXPECT_GT(source->look()->unseen, 0_B);
  EXPECT_TRUE(source->untrack(bytes));
  EXPECT_EQ(source->look()->unseen, 0_B);
}

TEST_P(Sources, TrackLockedMemoryOrSayThatTheyDoNot) {
  const Trackable memory(GetParam(), {16 * kPage});
  // ASan's mlock() does nothing.
  if (syscall(SYS_mlock, memory.bytes().data(), memory.bytes().size()) != 0)
    GTEST_SKIP() << "mlock is refused";
  const auto source = open();
  const auto tracking = source->track(memory.bytes());
  if (!tracking) {
    expect_refused(tracking, ErrorCode::unsupported, "mlock");
    return;
  }
  test::access_page(memory.bytes(), 3, Access::write);
  EXPECT_EQ(source->look()->touches.size(), 1u);
}

TEST_P(Sources, RefuseLooksThatComeTooSoon) {
  const Trackable memory(GetParam(), 1_MiB);
  const auto source = open(milliseconds{100});
  ASSERT_TRUE(source->track(memory.bytes()));
  clock_.advance(milliseconds{100});
  ASSERT_TRUE(source->look());
  clock_.advance(milliseconds{99});
  test::access_page(memory.bytes(), 3, Access::write);
  expect_refused(source->look(), ErrorCode::exhausted, "99.0 ms ago");
  clock_.advance(milliseconds{1});
  const auto sample = source->look();
  ASSERT_TRUE(sample);
  EXPECT_EQ(sample->covered, milliseconds{100});
  EXPECT_EQ(sample->touches.size(), 1u) << "nothing was forgotten";
}

TEST_P(Sources, GoOnWhenTheClockIsSetBack) {
  clock_.advance(std::chrono::hours{2});
  const Trackable memory(GetParam(), 1_MiB);
  const auto source = open(milliseconds{100});
  ASSERT_TRUE(source->track(memory.bytes()));
  ASSERT_TRUE(source->look());
  clock_.advance(-std::chrono::hours{1});
  const auto sample = source->look();
  ASSERT_TRUE(sample) << sample.error().message;
  EXPECT_EQ(sample->covered, Nanoseconds{});
  clock_.advance(milliseconds{100});
  EXPECT_EQ(source->look()->covered, milliseconds{100});
}

TEST_P(Sources, LeaveNothingOfTheMemoryTheyAreTriedOn) {
  struct Watching final : Kernel {
    int undone = 0;
    int refused = 0;
    void count(int result) { ++(result < 0 ? refused : undone); }
    int madvise(std::uintptr_t begin, std::size_t bytes, int advice) override {
      const int result = Kernel::madvise(begin, bytes, advice);
      if (advice == MADV_DODUMP) count(result);
      return result;
    }
    int ioctl(int descriptor, unsigned long request, void* argument) override {
      const int result = Kernel::ioctl(descriptor, request, argument);
      if (request == UFFDIO_UNREGISTER) count(result);
      return result;
    }
  } kernel;
  ASSERT_TRUE(open_hotness(GetParam(), {}, kernel));
  EXPECT_EQ(kernel.undone, 1) << "it is untracked, while it is mapped";
  EXPECT_EQ(kernel.refused, 0);
}

// Memory runs out at the call that counts down to 0.
struct OutOfMemory final : Kernel {
  int calls_left = -1;
  int registered = 0;
  int left_out = 0;
  void count() {
    if (calls_left >= 0 && calls_left-- == 0) throw std::bad_alloc();
  }
  int open(const char* path, int flags) override {
    count();
    return Kernel::open(path, flags);
  }
  int madvise(std::uintptr_t begin, std::size_t bytes, int advice) override {
    count();
    const int result = Kernel::madvise(begin, bytes, advice);
    if (advice == MADV_DONTDUMP) ++left_out;
    if (advice == MADV_DODUMP) left_out = 0;
    return result;
  }
  int ioctl(int descriptor, unsigned long request, void* argument) override {
    count();
    const int result = Kernel::ioctl(descriptor, request, argument);
    if (result == 0 && request == UFFDIO_REGISTER) ++registered;
    if (result == 0 && request == UFFDIO_UNREGISTER) --registered;
    return result;
  }
  std::int64_t write(int descriptor, const void* bytes, std::size_t size) override {
    count();
    return Kernel::write(descriptor, bytes, size);
  }
};

TEST_P(Sources, LeaveNothingWhenMemoryRunsOutAndGoOn) {
  OutOfMemory kernel;
  const auto source =
      open_hotness(GetParam(), {.chunk = 64_KiB, .least_interval = {}}, kernel).value();
  const Trackable memory(GetParam(), 1_MiB);
  kernel.left_out = 0;
  int refusals = 0;
  for (int calls = 0;; ++calls) {
    kernel.calls_left = calls;
    const auto tracking = source->track(memory.bytes());
    kernel.calls_left = -1;
    if (tracking) break;
    ++refusals;
    EXPECT_EQ(tracking.error().code, ErrorCode::exhausted) << tracking.error().message;
    EXPECT_EQ(kernel.registered, 0);
    EXPECT_EQ(kernel.left_out, 0);
  }
  EXPECT_GT(refusals, 1);
  kernel.calls_left = 0;
  expect_refused(source->look(), ErrorCode::exhausted, "memory");
  ASSERT_TRUE(source->look());
  test::access_page(memory.bytes(), 3, Access::write);
  EXPECT_EQ(source->look()->touches.size(), 1u);
}

TEST_P(Sources, InvalidOptions_AreRefused) {
  for (const Bytes chunk : {0_B, 1_B, 2048_B, 12_KiB}) {
    expect_refused(open_hotness(GetParam(), {.chunk = chunk}), ErrorCode::invalid, "power of two");
  }
  expect_refused(open_hotness(GetParam(), {.least_interval = milliseconds{-1}}), ErrorCode::invalid,
                 "0 or more");
}

TEST_P(Sources, BelongToTheProcessThatMadeThem) {
  const Trackable memory(GetParam(), 1_MiB);
  auto source = open();
  ASSERT_TRUE(source->track(memory.bytes()));
  test::access_page(memory.bytes(), 3, Access::write);
  EXPECT_EQ(test::status_of_child([&] {
              const bool refused = !source->look() && !source->track(memory.bytes()) &&
                                   !source->untrack(memory.bytes());
              source.reset();
              const auto own = open_hotness(GetParam(), {.least_interval = {}});
              if (!refused || !own || !(*own)->track(memory.bytes())) return false;
              for (std::size_t page = 64; page < 80; ++page) {
                test::access_page(memory.bytes(), page, Access::write);
              }
              const auto sample = (*own)->look();
              return sample && sample->touches.size() == 1;
            }),
            0);
  const auto sample = source->look();
  ASSERT_TRUE(sample) << sample.error().message;
  ASSERT_EQ(sample->touches.size(), 1u) << "what the child touched is no business of the parent";
  EXPECT_EQ(sample->touches.front().touched.value, kPage);
}

// Writers check and change each of their own bytes while other threads look.
TEST_P(Sources, KeepTheBytesOfConcurrentWriters) {
  constexpr int kWriters = 2;
  constexpr int kRounds = 40;
  const Trackable memory(GetParam(), 4_MiB);
  const auto source = open();
  ASSERT_TRUE(source->track(memory.bytes()));
  std::memset(memory.bytes().data(), 0, memory.bytes().size());
  std::atomic<int> running{kWriters};
  std::atomic<bool> right{true};
  std::vector<std::thread> writers;
  for (int writer = 0; writer < kWriters; ++writer) {
    writers.emplace_back([&, writer] {
      const auto part =
          memory.bytes().subspan(static_cast<std::size_t>(writer) * 2_MiB .value, 2_MiB .value);
      for (int round = 0; round < kRounds; ++round) {
        for (std::size_t at = 0; at < part.size(); at += 64) {
          if (part[at] != static_cast<std::byte>(round)) right = false;
          part[at] = static_cast<std::byte>(round + 1);
        }
      }
      --running;
    });
  }
  std::uint64_t looks = 0;
  while (running > 0) {
    if (!source->look()) right = false;
    if (++looks % 8 == 0 && (!source->untrack(memory.bytes()) || !source->track(memory.bytes()))) {
      right = false;
    }
  }
  for (std::thread& each : writers) each.join();
  EXPECT_TRUE(right);
  std::vector<std::byte> wanted(memory.bytes().size());
  for (std::size_t at = 0; at < wanted.size(); at += 64) wanted[at] = std::byte{kRounds};
  EXPECT_TRUE(test::same(memory.bytes(), wanted));
}

TEST_P(Sources, MayBeUsedBySeveralThreads) {
  const auto source = open();
  std::atomic<bool> right{true};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&] {
      const Trackable memory(GetParam(), {64 * kPage});
      for (int i = 0; i < 20; ++i) {
        if (!source->track(memory.bytes()) || !source->look() || !source->untrack(memory.bytes())) {
          right = false;
        }
      }
    });
  }
  for (std::thread& each : threads) each.join();
  EXPECT_TRUE(right);
}

// Otherwise the tests of a broken source would merely be skipped.
TEST(HotnessKinds, AreThereWhereTheKernelHasWhatTheyTake) {
  const auto pagemap = open_pagemap(system_kernel());
  const auto protection = open_write_protection(system_kernel());
  if (!pagemap) GTEST_SKIP() << pagemap.error().message;
  if (!protection) GTEST_SKIP() << protection.error().message;
  for (const HotnessKind kind : kHotnessKinds) {
    const auto source = open_hotness(kind);
    EXPECT_TRUE(source) << source.error().message;
  }
}

}  // namespace
}  // namespace headrace
