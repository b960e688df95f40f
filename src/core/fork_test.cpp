// SPDX-License-Identifier: Apache-2.0
#include "core/fork.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

#include "support/child.h"

namespace headrace {
namespace {

using test::status_of_child;

TEST(Origin, InAChild_OnlyItsOwnObjectsAreHere) {
  const Origin origin;
  EXPECT_TRUE(origin.here());
  EXPECT_TRUE(origin.check("it").has_value());
  EXPECT_EQ(status_of_child([&] {
              const Status status = origin.check("it");
              return !origin.here() && !status && status.error().code == ErrorCode::unsupported &&
                     status.error().message.starts_with("it was made before a fork()") &&
                     Origin().here();
            }),
            0);
  EXPECT_TRUE(origin.here());
}

TEST(Origin, ObjectOfAGrandparent_IsElsewhere) {
  const Origin origin;
  EXPECT_EQ(status_of_child([&] {
              const Origin own;
              return status_of_child([&] { return !origin.here() && !own.here(); }) == 0 &&
                     own.here();
            }),
            0);
}

TEST(Abandon, RunsNoDestructor) {
  static int destroyed = 0;
  struct Counts {
    std::unique_ptr<int> held = std::make_unique<int>(1);
    Counts() = default;
    Counts(Counts&&) = default;
    ~Counts() { destroyed += held != nullptr; }
  };
  Counts counts;
  abandon(std::move(counts));
  EXPECT_EQ(destroyed, 0);
}

TEST(MadeOnce, Fork_WaitsForACreationInAnotherThread) {
  static MadeOnce<int>& made = *new MadeOnce<int>(kRankOfKernel);
  std::atomic<bool> begun{false};
  std::atomic<int> times{0};
  const auto make = [&] {
    begun = true;
    std::this_thread::sleep_for(std::chrono::milliseconds{100});
    return ++times;
  };
  std::atomic<bool> stop{false};
  std::thread other([&] {
    EXPECT_EQ(made.get(make), 1);
    // The thread sanitizer would report a finished thread as a leak of the child.
    while (!stop) std::this_thread::yield();
  });
  while (!begun) std::this_thread::yield();
  EXPECT_EQ(status_of_child([&] { return made.get(make) == 1; }), 0);
  EXPECT_EQ(made.get(make), 1);
  stop = true;
  other.join();
}

TEST(GlobalMutex, IsFreeInAChildWhateverOtherThreadsDo) {
  static GlobalMutex& low = *new GlobalMutex(kRankOfKinds);
  static GlobalMutex& high = *new GlobalMutex(kRankOfFiles);
  static int changes GUARDED_BY(high) = 0;
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop) {
      const MutexLock outer(low);
      const MutexLock inner(high);
      // Odd only while the mutex is held.
      ++changes;
      std::this_thread::yield();
      ++changes;
    }
  });
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(status_of_child([] {
                const MutexLock outer(low);
                const MutexLock inner(high);
                return changes % 2 == 0;
              }),
              0);
  }
  stop = true;
  other.join();
}

}  // namespace
}  // namespace headrace
