// SPDX-License-Identifier: Apache-2.0
// Runs out of memory: each allocation of a scenario fails in turn. The Mover must not hang, end the
// program, lose a move or leak.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <new>

#include "move/mover_testing.h"
#include "tests/support/failing_new_testing.h"
#include "tests/support/plain_backend.h"

#if !defined(HEADRACE_TSAN)

namespace {

// The allocation that counts `until_failure` down to 0 fails, and with `and_after` all later ones.
constinit std::atomic<bool> armed{false};
constinit std::atomic<bool> and_after{false};
constinit std::atomic<bool> has_failed{false};
constinit std::atomic<std::ptrdiff_t> until_failure{0};

}  // namespace

bool headrace::test::allocation_fails() noexcept {
  if (!armed) return false;
  const std::ptrdiff_t left = --until_failure;
  const bool fails = left == 0 || (left < 0 && and_after);
  if (fails) has_failed = true;
  return fails;
}

namespace headrace {
namespace {

using test::kCpuA;
using test::kCpuB;
using test::PlainBackend;

struct Scene {
  explicit Scene(bool poller) : with_poller(poller) {
    auto first = std::make_unique<PlainBackend>(std::vector{kCpuA}, false);
    polled = first.get();
    backends.add(std::move(first));
    backends.add(std::make_unique<PlainBackend>(std::vector{kCpuB}, true));
  }

  static constexpr std::uint64_t kSlot = 8192;
  Transfer start(std::size_t slot, const MoveOptions& how) {
    const Transfer transfer =
        mover->copy({&to, slot * kSlot, Bytes{kSlot}}, {&from, slot * kSlot, Bytes{kSlot}}, how);
    try {
      for (int i = 0; i < 2; ++i) {  // the first needs no memory
        transfer.on_done([this](const auto&) { ++told; });
        ++listened;
      }
    } catch (const std::bad_alloc&) {
      // The callback was not accepted, and is not called.
    }
    return transfer;
  }

  // The part during which memory fails.
  void play() {
    try {
      mover.emplace(machine, backends,
                    MoverOptions{.route = test::by_engine(kCpuA),
                                 .piece = 1_KiB,
                                 .in_flight_per_link = 4_KiB,
                                 .poller = with_poller});
    } catch (const std::bad_alloc&) {
      return;  // no memory
    }
    polled->failures = 2;  // two pieces are retried on the other engine
    transfers[0] = start(0, {});
    transfers[1] = start(1, {.priority = Priority::prefetch});
    transfers[2] = start(2, inlined);
    transfers[3] = start(3, {.priority = Priority::migration});
    transfers[4] = start(4, {});
    transfers[1].promote(Priority::demand);
    transfers[3].cancel();
    for (const Transfer& transfer : transfers) static_cast<void>(transfer.wait());
    transfers[6] = mover->copy(pairs);
    static_cast<void>(transfers[6].wait());
    transfers[5] = start(5, {});
    mover.reset();  // while the move is in flight
    played = true;
  }

  // All moves have ended. A successful one has its bytes, a failed one its reason.
  void judge(bool failed) const {
    EXPECT_EQ(told, listened);
    for (std::size_t i = 0; i < transfers.size(); ++i) {
      ASSERT_TRUE(transfers[i].done()) << i;
      const auto outcome = transfers[i].poll().value();
      const auto at = static_cast<std::ptrdiff_t>(i * kSlot);
      if (!outcome) {
        const ErrorCode code = outcome.error().code;
        // If a piece fails after memory ran out for the next one, the piece's error is the last.
        EXPECT_TRUE((failed && (code == ErrorCode::exhausted || code == ErrorCode::io)) ||
                    (i >= 3 && code == ErrorCode::cancelled))
            << i << ": " << outcome.error().message;
      } else if (played) {
        EXPECT_TRUE(std::equal(a.begin() + at, a.begin() + at + kSlot, b.begin() + at)) << i;
      }
    }
  }

  const bool with_poller;
  const MoveOptions inlined{.route = test::by_engine(kCpuB)};
  const Machine machine = test::small_machine();
  std::vector<std::byte> a = test::random_bytes(1 << 16, 1);
  std::vector<std::byte> b = std::vector<std::byte>(1 << 16);
  MemoryRange from{a, test::kDram};
  MemoryRange to{b, test::kHbm};
  Backends backends;
  PlainBackend* polled = nullptr;
  std::optional<Mover> mover;
  const std::vector<MovePair> pairs{
      {{&to, 6 * kSlot, Bytes{4000}}, {&from, 6 * kSlot, Bytes{4000}}},
      {{&to, 6 * kSlot + 4000, Bytes{kSlot - 4000}},
       {&from, 6 * kSlot + 4000, Bytes{kSlot - 4000}}}};
  std::array<Transfer, 7> transfers;
  std::atomic<int> told{0};
  int listened = 0;
  bool played = false;
};

class MoverWithoutMemory : public testing::TestWithParam<std::pair<bool, bool>> {};

TEST_P(MoverWithoutMemory, FailedAllocation_StillEndsEveryMove) {
  const auto [poller, all] = GetParam();
  for (std::ptrdiff_t nth = 1; !HasFailure(); ++nth) {
    ASSERT_LT(nth, 1000);
    const std::int64_t before = test::live_bytes.load();
    bool failed = false;
    {
      Scene scene(poller);
      has_failed.store(false);
      until_failure.store(nth);
      and_after.store(all);
      armed.store(true);
      scene.play();
      armed.store(false);
      failed = has_failed.load();
      scene.judge(failed);
    }
    if (!poller) {
      EXPECT_EQ(test::live_bytes.load(), before) << "leaked at allocation " << nth;
    }
    if (!failed) {
      EXPECT_GT(nth, 20) << "the scenario allocates";
      return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, MoverWithoutMemory,
                         testing::Values(std::pair{false, false}, std::pair{false, true},
                                         std::pair{true, false}, std::pair{true, true}),
                         [](const auto& each) {
                           return std::string(each.param.first ? "WithAThread" : "WithoutAThread") +
                                  (each.param.second ? "AllFromThenOn" : "One");
                         });

// A cache that starts a copy in a callback needs the report of its end, and cannot wait there for
// memory.
TEST(MoverCallbackWithoutMemory, NoMemory_KeepsOneSmallCallbackAndRefusesTheNext) {
  Scene scene(false);
  scene.mover.emplace(scene.machine, scene.backends,
                      MoverOptions{.route = test::by_engine(kCpuA), .poller = false});
  const Transfer transfer = scene.mover->copy(whole(scene.to), whole(scene.from));
  int first = 0;
  int second = 0;
  until_failure.store(1);
  and_after.store(true);
  armed.store(true);
  bool taken = true;
  bool next_taken = true;
  try {
    transfer.on_done([&first, &second](const auto&) { first += second == 0; });
  } catch (const std::bad_alloc&) {
    taken = false;
  }
  try {
    transfer.on_done([&second](const auto&) { ++second; });
  } catch (const std::bad_alloc&) {
    next_taken = false;
  }
  armed.store(false);
  EXPECT_TRUE(taken);
  EXPECT_FALSE(next_taken);
  ASSERT_TRUE(transfer.wait());
  EXPECT_EQ(first, 1);
  EXPECT_EQ(second, 0);
}

}  // namespace
}  // namespace headrace

#endif
