#include "core/thread.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/affinity.h"
#include "core/sanitizers.h"

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

// Exits with 0 if no thread can be started and that limit is named.
[[noreturn]] void start_none(const char* limit) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 1000; ++i) {
    auto thread = start_thread("headrace-test", [] { pause(); });
    if (!thread) {
      std::_Exit(thread.error().message.find(limit) != std::string::npos ? 0 : 1);
    }
    threads.push_back(*std::move(thread));
  }
  std::_Exit(2);
}

TEST(ThreadTest, ThatCannotBeStartedNamesTheNumberOfThreads) {
  if (geteuid() != 0) GTEST_SKIP() << "a user's own threads are counted";
  const auto few = [] {
    const rlimit one{.rlim_cur = 1, .rlim_max = 1};
    if (setrlimit(RLIMIT_NPROC, &one) != 0 || setuid(65534) != 0) std::_Exit(3);
    start_none("(ulimit -u, ");
  };
  EXPECT_EXIT(few(), testing::ExitedWithCode(0), "");
}

TEST(ThreadTest, ThatCannotBeStartedNamesTheAddressSpace) {
#if defined(HEADRACE_ASAN) || defined(HEADRACE_TSAN)
  GTEST_SKIP() << "sanitizers reserve more";
#else
  const auto narrow = [] {
    const rlimit little{.rlim_cur = 256 << 20, .rlim_max = 256 << 20};
    if (setrlimit(RLIMIT_AS, &little) != 0) std::_Exit(3);
    start_none("(ulimit -v)");
  };
  EXPECT_EXIT(narrow(), testing::ExitedWithCode(0), "");
#endif
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
