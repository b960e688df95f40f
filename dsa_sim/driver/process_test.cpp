// SPDX-License-Identifier: Apache-2.0
#include "dsa_sim/driver/process.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <thread>

namespace headrace::emulator {
namespace {

pid_t this_thread() { return static_cast<pid_t>(syscall(SYS_gettid)); }

// A child that lives until told to end.
class Child {
 public:
  Child() {
    EXPECT_EQ(pipe(ends_.data()), 0);
    pid_ = fork();
    if (pid_ == 0) {
      char byte;
      close(ends_[1]);
      (void)!::read(ends_[0], &byte, 1);
      _exit(0);
    }
    close(ends_[0]);
  }
  ~Child() { end(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  void end() {
    if (pid_ == 0) return;
    close(ends_[1]);
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  std::array<int, 2> ends_{};
  pid_t pid_ = 0;
};

TEST(Process, AThreadIsOfItAndAChildIsNot) {
  const Answer<Process> process = Process::open(this_thread());
  ASSERT_TRUE(process);
  EXPECT_EQ(process->pid(), getpid());
  EXPECT_TRUE(process->has(getpid()));
  bool same = false;
  std::thread([&] { same = process->has(this_thread()); }).join();
  EXPECT_TRUE(same);
  const Child child;
  EXPECT_FALSE(process->has(child.pid()));
}

TEST(Process, IsFoundByAnyOfItsThreads) {
  std::thread([] {
    const Answer<Process> process = Process::open(this_thread());
    ASSERT_TRUE(process);
    EXPECT_EQ(process->pid(), getpid());
  }).join();
}

TEST(Process, HasNoThreadAfterItsEnd) {
  Child child;
  const Answer<Process> process = Process::open(child.pid());
  ASSERT_TRUE(process);
  const pid_t pid = child.pid();
  EXPECT_TRUE(process->has(pid));
  child.end();
  EXPECT_FALSE(process->has(pid));
}

TEST(Process, ThereIsNoneOfThatNumber) {
  EXPECT_EQ(Process::open(0).error(), std::errc::no_such_process);
  Child child;
  const pid_t pid = child.pid();
  child.end();
  EXPECT_EQ(Process::open(pid).error(), std::errc::no_such_process);
}

// The same number, another program.
TEST(Process, IsAnotherAfterExec) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    char byte;
    close(ends[1]);
    (void)!::read(ends[0], &byte, 1);
    execl("/bin/sleep", "sleep", "1000", nullptr);
    _exit(1);
  }
  close(ends[0]);
  {
    const Answer<Process> process = Process::open(pid);
    ASSERT_TRUE(process);
    EXPECT_TRUE(process->has(pid));
    close(ends[1]);
    bool has = true;
    for (int i = 0; has && i < 3000; ++i) {
      has = process->has(pid);
      std::this_thread::sleep_for(std::chrono::milliseconds{10});
    }
    EXPECT_FALSE(has);
  }
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

}  // namespace
}  // namespace headrace::emulator
