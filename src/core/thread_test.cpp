#include "core/thread.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <string>
#include <vector>

#include "core/affinity.h"

namespace headrace {
namespace {

struct Seen {
  bool takes_interrupt = true;
  bool takes_bus_error = false;
  std::string name;
};

TEST(ThreadTest, TakesNoSignalsAndHasAName) {
  Seen seen;
  auto thread = start_thread("headrace-test", [&seen] {
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    seen.takes_interrupt = sigismember(&blocked, SIGINT) == 0;
    seen.takes_bus_error = sigismember(&blocked, SIGBUS) == 0;
    std::array<char, 16> name{};
    // The one who started it may be about to name it.
    for (int i = 0; i < 1000 && std::string(name.data()) != "headrace-test"; ++i) {
      pthread_getname_np(pthread_self(), name.data(), name.size());
      usleep(1000);
    }
    seen.name = name.data();
  });
  ASSERT_TRUE(thread.has_value());
  thread->join();
  EXPECT_FALSE(seen.takes_interrupt);
  EXPECT_TRUE(seen.takes_bus_error) << "a fault of its own, for which there may be a handler";
  EXPECT_EQ(seen.name, "headrace-test");
  sigset_t blocked;
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  EXPECT_EQ(sigismember(&blocked, SIGINT), 0) << "of the one who started it";
}

TEST(ThreadTest, IsNotPinnedWithTheOneThatStartsIt) {
  const auto process = allowed_cpus(getpid());
  std::vector<unsigned> seen;
  std::jthread([&] {
    ASSERT_TRUE(pin(pthread_self(), std::vector{process.back()}));
    auto thread = start_thread("headrace-test", [&] {
      for (int i = 0; i < 1000 && seen != process; ++i) {
        seen = allowed_cpus();
        usleep(1000);
      }
    });
    ASSERT_TRUE(thread.has_value());
    thread->join();
  }).join();
  EXPECT_EQ(seen, process);
}

}  // namespace
}  // namespace headrace
