// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/keyvalue/live/server_process.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

namespace headrace::kv_bench {
namespace {

TEST(ServerProcess, EndsWithItsParentHoweverThatEnds) {
  int told[2];
  ASSERT_EQ(::pipe(told), 0);
  const pid_t parent = ::fork();
  ASSERT_GE(parent, 0);
  if (parent == 0) {
    const pid_t self = ::getpid();
    const pid_t child = ::fork();
    if (child == 0) {
      // It keeps the writing end open while it lives.
      const std::array<const char*, 2> words = {"sleep", "1000"};
      (void)become(words, self);
      ::_exit(1);
    }
    ::close(told[0]);
    ::usleep(50'000);  // by now it is the sleep, or has noticed our end
    ::kill(self, SIGKILL);
  }
  ::close(told[1]);
  ASSERT_EQ(::waitpid(parent, nullptr, 0), parent);
  pollfd ended{told[0], POLLIN, 0};
  EXPECT_EQ(::poll(&ended, 1, 30'000), 1);  // hung up: no process has it open
  ::close(told[0]);
}

TEST(ServerProcess, EndedParent_ProgramDoesNotStart) {
  const std::array<const char*, 1> words = {"true"};
  const pid_t child = ::fork();
  if (child == 0) ::_exit(become(words, 1).error().code == ErrorCode::cancelled ? 0 : 1);
  int status = 1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(ServerProcess, MissingProgram_IsReported) {
  const std::array<const char*, 1> words = {"headrace-no-such-program"};
  const pid_t self = ::getpid(), child = ::fork();
  if (child == 0) ::_exit(become(words, self).error().code == ErrorCode::absent ? 0 : 1);
  int status = 1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(ServerProcess, UsageGrowsWithWork) {
  const auto before = usage_of(::getpid());
  ASSERT_TRUE(before);
  volatile std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < 20'000'000; ++i) sum = sum + i;
  EXPECT_GT(usage_of(::getpid())->cpu_ns, before->cpu_ns);
  EXPECT_FALSE(usage_of(0));
  EXPECT_FALSE(usage_of(1 << 29));
}

// A child with 4 MiB of known bytes, which reports at the end whether they are unchanged.
class Sleeper {
 public:
  Sleeper() {
    if (::pipe(go_) != 0) std::abort();
    child_ = ::fork();
    if (child_ == 0) live();
    ::close(go_[0]);
  }
  pid_t pid() const { return child_; }
  bool unchanged() {
    ::close(go_[1]);
    int status = 1;
    ::waitpid(child_, &status, 0);
    return status == 0;
  }

 private:
  [[noreturn]] void live() {
    ::close(go_[1]);
    std::vector<unsigned char> bytes(4 << 20);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(i * 7);
    char byte;
    (void)!::read(go_[0], &byte, 1);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      if (bytes[i] != static_cast<unsigned char>(i * 7)) ::_exit(1);
    }
    ::_exit(0);
  }

  int go_[2] = {-1, -1};
  pid_t child_ = -1;
};

TEST(ServerProcess, PagesGoOutAsFarAsThereIsSwapAndLoseNothing) {
  Sleeper sleeper;
  PagesOut all;
  for (int i = 0; i < 500 && all.data.value < (4 << 20); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    if (const auto seen = page_out(sleeper.pid(), 0, 1)) all = *seen;
  }
  if (all.data.value < (4 << 20)) {
    EXPECT_TRUE(sleeper.unchanged());
    GTEST_SKIP() << "pages of another process are not to be seen here";
  }
  EXPECT_EQ(all.out.value, 0U);
  for (const double share : {0.5, 0.2}) {
    const auto pages = page_out(sleeper.pid(), share, 1);
    if (!pages) {  // not root, or a kernel without it
      EXPECT_TRUE(pages.error().code == ErrorCode::denied ||
                  pages.error().code == ErrorCode::unsupported)
          << pages.error().message;
      break;
    }
    const double out = static_cast<double>(pages->out.value) / 4096;
    EXPECT_LT(out, share * static_cast<double>(pages->data.value) / 4096 * 1.2);
  }
  EXPECT_TRUE(sleeper.unchanged());
}

TEST(ServerProcess, AbsentProcess_HasNoPages) {
  EXPECT_EQ(page_out(1 << 29, 0.5, 1).error().code, ErrorCode::absent);
}

}  // namespace
}  // namespace headrace::kv_bench
