#include "measure/instruments/lockstep.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace headrace::instruments {
namespace {

// Plain integers: what is written before a meeting is read after it without a race.
TEST(Lockstep, NobodyIsARoundAheadAndAllStopTogether) {
  constexpr std::size_t kThreads = 4;
  constexpr int kRounds = 300;
  Lockstep lockstep(kThreads);
  std::vector<int> rounds(kThreads, 0);
  std::vector<int> wrong(kThreads, 0);
  std::vector<std::thread> threads;
  for (std::size_t me = 0; me < kThreads; ++me) {
    threads.emplace_back([&, me] {
      do {
        ++rounds[me];
        if (me == 0 && rounds[me] == kRounds) lockstep.stop();
        lockstep.meet();
        for (const int other : rounds) wrong[me] += other != rounds[me] ? 1 : 0;
        lockstep.meet();
      } while (!lockstep.stopped());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(rounds, std::vector<int>(kThreads, kRounds));
  EXPECT_EQ(wrong, std::vector<int>(kThreads, 0));
}

TEST(Lockstep, OneThreadMeetsItself) {
  Lockstep lockstep(1);
  for (int i = 0; i < 10; ++i) lockstep.meet();
  EXPECT_FALSE(lockstep.stopped());
}

}  // namespace
}  // namespace headrace::instruments
