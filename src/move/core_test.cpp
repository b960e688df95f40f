// SPDX-License-Identifier: Apache-2.0
// Many threads at once, for ThreadSanitizer: movers, waiters, cancellers and two backends that
// complete from threads of their own or when polled.
#include <gtest/gtest.h>

#include <deque>
#include <thread>

#include "move/mover_testing.h"

namespace headrace {
namespace {

using test::kCpuA;
using test::kCpuB;

constexpr std::size_t kThreads = 4;
constexpr std::size_t kMovesEach = 300;
constexpr std::size_t kSlot = 4096;

struct Setting {
  std::string name;
  bool own_thread;  // for the backend of engine A; that of B is polled
  double inside;
};

class MoverStress : public testing::TestWithParam<Setting> {
 protected:
  MoverStress() {
    FakeOptions options{.engines = {kCpuA},
                        .max_in_flight = 3,
                        .reorder = true,
                        .inside_chance = GetParam().inside,
                        .partial_chance = 0.3,
                        .fail_chance = 0.05,
                        .own_thread = GetParam().own_thread,
                        .log = false};
    backends_.add(std::make_unique<FakeBackend>(options));
    options.engines = {kCpuB};
    options.own_thread = false;
    backends_.add(std::make_unique<FakeBackend>(options));
    mover_.emplace(machine_, backends_,
                   MoverOptions{.piece = Bytes{1000}, .in_flight_per_link = Bytes{6000}});
  }

  Extent source(std::size_t thread, std::uint64_t length) const {
    return {&from_, thread * kSlot, Bytes{length}};
  }
  Extent target(std::size_t thread, std::uint64_t length) const {
    return {&to_, thread * kSlot, Bytes{length}};
  }
  bool copied(std::size_t thread, std::uint64_t length) const {
    return std::memcmp(a_.data() + thread * kSlot, b_.data() + thread * kSlot, length) == 0;
  }

  const Machine machine_ = test::small_machine();
  std::vector<std::byte> a_ = test::random_bytes(kThreads * kSlot, 1);
  std::vector<std::byte> b_ = std::vector<std::byte>(kThreads * kSlot);
  MemoryRange from_{a_, test::kDram};
  MemoryRange to_{b_, test::kHbm};
  Backends backends_;
  std::optional<Mover> mover_;
};

TEST_P(MoverStress, ManyThreads_EveryMoveEndsOnceWithTheRightBytes) {
  std::atomic<std::uint64_t> told{0};
  std::atomic<std::uint64_t> wrong{0};
  {
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        Random random(t);
        for (std::size_t i = 0; i < kMovesEach; ++i) {
          const std::uint64_t length = 1 + random.below(kSlot);
          MoveOptions options{.priority = static_cast<Priority>(random.below(3))};
          options.route = test::by_engine(random.chance(0.5) ? kCpuA : kCpuB);
          const Transfer transfer = mover_->copy(target(t, length), source(t, length), options);
          transfer.on_done([&](const auto&) { ++told; });
          if (random.chance(0.3)) transfer.promote(static_cast<Priority>(random.below(3)));
          if (random.chance(0.1)) transfer.cancel();
          const auto outcome = transfer.wait();
          if (outcome ? !copied(t, length) : outcome.error().code == ErrorCode::timed_out) ++wrong;
        }
      });
    }
  }
  mover_.reset();
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(told, kThreads * kMovesEach);
}

// Other threads use handles, callbacks and cancellations while the Mover is destroyed.
TEST_P(MoverStress, DestroyedWhileHandlesAreUsed_HandlesStayValid) {
  std::deque<Transfer> transfers;
  std::atomic<std::uint64_t> told{0};
  for (std::size_t t = 0; t < kThreads; ++t) {
    transfers.push_back(mover_->copy(target(t, kSlot), source(t, kSlot)));
    transfers.back().on_done([&](const auto&) { ++told; });
  }
  std::vector<std::jthread> threads;
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      if (t % 2 == 0) transfers[t].cancel();
      const auto outcome = transfers[t].wait();
      EXPECT_TRUE(!outcome || copied(t, kSlot));
    });
  }
  mover_.reset();
  threads.clear();
  EXPECT_EQ(told, kThreads);
}

INSTANTIATE_TEST_SUITE_P(Backends, MoverStress,
                         testing::Values(Setting{"Threaded", true, 0.1},
                                         Setting{"Polled", false, 0.1},
                                         Setting{"Inline", true, 1.0}),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace headrace
