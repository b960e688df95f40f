#include "measure/instruments/lockstep.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace headrace::instruments {
namespace {

// Plain integers: what is written before a meeting is read after it without a race.
TEST(Lockstep, NobodyIsARoundAhead) {
  constexpr std::size_t kThreads = 4;
  constexpr int kRounds = 300;
  Lockstep lockstep(kThreads);
  std::vector<int> rounds(kThreads, 0);
  std::vector<int> wrong(kThreads, 0);
  std::vector<std::thread> threads;
  for (std::size_t me = 0; me < kThreads; ++me) {
    threads.emplace_back([&, me] {
      for (int i = 0; i < kRounds; ++i) {
        ++rounds[me];
        lockstep.meet();
        for (const int other : rounds) wrong[me] += other != rounds[me] ? 1 : 0;
        lockstep.meet();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(rounds, std::vector<int>(kThreads, kRounds));
  EXPECT_EQ(wrong, std::vector<int>(kThreads, 0));
}

// One that is slow to leave a meeting must not see that the next will be the last: it would not
// come to it.
TEST(Lockstep, AllStopAtTheSameMeeting) {
  constexpr std::size_t kThreads = 4;
  for (int end = 1; end <= 200; ++end) {
    Lockstep lockstep(kThreads);
    std::vector<int> rounds(kThreads, 0);
    std::vector<std::thread> threads;
    for (std::size_t me = 0; me < kThreads; ++me) {
      threads.emplace_back([&, me] {
        do {
          if (me == 0 && rounds[me] + 1 == end % 7 + 1) lockstep.stop();
          ++rounds[me];
        } while (!lockstep.meet());
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(rounds, std::vector<int>(kThreads, end % 7 + 1));
  }
}

TEST(Lockstep, OneThreadMeetsItself) {
  Lockstep lockstep(1);
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(lockstep.meet());
  lockstep.stop();
  EXPECT_TRUE(lockstep.meet());
}

}  // namespace
}  // namespace headrace::instruments
