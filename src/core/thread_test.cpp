// SPDX-License-Identifier: Apache-2.0
#include "core/thread.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
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
    // The starting thread may not have named it yet.
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

TEST(ThreadTest, SleepsWithoutTimerSlack) {
  const int before = prctl(PR_GET_TIMERSLACK);
  int slack = 0;
  auto thread = start_thread("headrace-test", [&slack] { slack = prctl(PR_GET_TIMERSLACK); });
  ASSERT_TRUE(thread.has_value());
  thread->join();
  EXPECT_EQ(slack, 1);
  EXPECT_EQ(prctl(PR_GET_TIMERSLACK), before) << "of the thread that started it";
}

// Exits with 0 if no thread can be started and the message names this limit.
[[noreturn]] void start_none(const char* limit) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 1000; ++i) {
    auto thread = start_thread("headrace-test", [] { pause(); });
    if (!thread) {
      const std::string& why = thread.error().message;
      if (why.find(limit) != std::string::npos) std::_Exit(0);
      std::fprintf(stderr, "after %d threads: %s\n", i, why.c_str());
      std::_Exit(1);
    }
    threads.push_back(*std::move(thread));
  }
  std::_Exit(2);
}

TEST(ThreadTest, LimitOfThreads_IsNamed) {
  if (geteuid() != 0) GTEST_SKIP() << "a user's own threads are counted";
  const auto few = [] {
    const rlimit one{.rlim_cur = 1, .rlim_max = 1};
    if (setrlimit(RLIMIT_NPROC, &one) != 0 || setuid(65534) != 0) std::_Exit(3);
    start_none("(ulimit -u, ");
  };
  EXPECT_EXIT(few(), testing::ExitedWithCode(0), "");
}

// Starts threads with `more` bytes of address space left. Only stacks reach that limit: malloc()
// has its memory already, and no arena per thread.
[[noreturn]] void start_in(rlim_t more) {
  for (const int option : {M_MMAP_THRESHOLD, M_TRIM_THRESHOLD}) {
    if (mallopt(option, 16 << 20) == 0) std::_Exit(3);
  }
  if (mallopt(M_ARENA_MAX, 1) == 0) std::_Exit(3);
  std::free(std::malloc(8 << 20));
  rlim_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t bytes = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + more;
  const rlimit little{.rlim_cur = bytes, .rlim_max = bytes};
  if (pages == 0 || setrlimit(RLIMIT_AS, &little) != 0) std::_Exit(4);
  start_none("(ulimit -v)");
}

TEST(ThreadTest, LimitOfAddressSpace_IsNamed) {
#if defined(HEADRACE_ASAN) || defined(HEADRACE_TSAN)
  GTEST_SKIP() << "sanitizers reserve more";
#else
  pthread_attr_t attributes;
  std::size_t stack = 0;
  ASSERT_EQ(pthread_getattr_default_np(&attributes), 0);
  pthread_attr_getstacksize(&attributes, &stack);
  pthread_attr_destroy(&attributes);
  EXPECT_EXIT(start_in(stack / 2), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(start_in(stack), testing::ExitedWithCode(0), "") << "its guard does not fit";
  EXPECT_EXIT(start_in(10 * stack), testing::ExitedWithCode(0), "");
#endif
}

TEST(ThreadTest, PinnedCreator_DoesNotPinTheThread) {
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
