// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/side_by_side/load_processes.h"

#include <gtest/gtest.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <thread>

#include "core/affinity.h"
#include "measure/instruments/side_by_side/loads.h"
#include "measure/instruments/worker_pool.h"

namespace headrace::instruments {
namespace {

using Milliseconds = std::chrono::milliseconds;
constexpr Bytes kEach = 4_MiB;

// Whether the process exists; a child that was not collected does.
bool exists(pid_t id) { return ::kill(id, 0) == 0 || errno != ESRCH; }

class LoadProcessesTest : public testing::Test {
 protected:
  LoadProcess copying(unsigned cpu) {
    LoadProcess process{.cpu = cpu};
    for (int side = 0; side < 2; ++side) {
      auto made = untouched(machine_, node_, kEach);
      EXPECT_TRUE(made) << made.error().message;
      process.memory.push_back(*std::move(made));
    }
    process.load =
        std::make_unique<CopyLoad>(process.memory[0]->bytes(), process.memory[1]->bytes());
    memory_ = process.memory.front()->bytes();
    return process;
  }

  std::unique_ptr<LoadProcesses> start(std::size_t count) {
    std::vector<LoadProcess> all;
    for (std::size_t i = 0; i < count; ++i) all.push_back(copying(usable_cpus().back()));
    auto made = LoadProcesses::start(std::move(all));
    EXPECT_TRUE(made) << made.error().message;
    return made ? *std::move(made) : nullptr;
  }

  // Retries: on a busy machine a process may have no CPU for the whole of a window.
  Result<SideBySide> beside(LoadProcesses& processes, const std::vector<Load*>& loads,
                            std::size_t count) {
    const CpuSet cpus = loads.empty() ? CpuSet{} : CpuSet{usable_cpus().front()};
    auto seen = processes.beside(cpus, loads, Milliseconds{20}, count);
    for (int i = 0; i < 20 && !seen && seen.error().code == ErrorCode::timed_out; ++i) {
      seen = processes.beside(cpus, loads, Milliseconds{20}, count);
    }
    return seen;
  }

  const Machine machine_ = Machine::discover({.storage = {}}).value();
  const NodeId node_ = machine_.nodes.front().id;
  std::span<std::byte> memory_;  // of the last process
};

TEST_F(LoadProcessesTest, EachIsAProcessThatCopiesOnItsCpuInMemoryOfItsOwn) {
  auto processes = start(2);
  ASSERT_NE(processes, nullptr);
  const std::vector<pid_t> ids = processes->ids();
  ASSERT_EQ(ids.size(), 2U);
  for (const pid_t id : ids) {
    EXPECT_NE(id, getpid());
    EXPECT_EQ(allowed_cpus(id), std::vector<unsigned>{usable_cpus().back()});
    // Only the child has pages of this memory; this process has the addresses.
    std::ifstream statm("/proc/" + std::to_string(id) + "/statm");
    std::size_t size = 0;
    std::size_t resident = 0;
    statm >> size >> resident;
    EXPECT_GE(resident * static_cast<std::size_t>(getpagesize()), 2 * kEach.value);
  }
  std::vector<unsigned char> present(memory_.size() / 4096);
  ASSERT_EQ(mincore(memory_.data(), memory_.size(), present.data()), 0);
  EXPECT_EQ(std::ranges::count_if(present, [](unsigned char page) { return (page & 1) != 0; }), 0);
  const auto seen = beside(*processes, {}, 2);
  ASSERT_TRUE(seen) << seen.error().message;
  ASSERT_EQ(seen->rates.size(), 2U);
  EXPECT_GT(seen->rates[0], 0);
  EXPECT_GT(seen->rates[1], 0);
  EXPECT_LE(seen->cpu_share, 1.05);
}

TEST_F(LoadProcessesTest, LoadsOfThisProcessAreCountedInTheSameWindow) {
  auto processes = start(1);
  ASSERT_NE(processes, nullptr);
  std::vector<std::byte> from(1 << 20);
  std::vector<std::byte> to(1 << 20);
  CopyLoad own(to, from);
  const auto both = beside(*processes, {&own}, 1);
  ASSERT_TRUE(both) << both.error().message;
  ASSERT_EQ(both->rates.size(), 2U);
  EXPECT_GT(both->rates[0], 0);
  EXPECT_GT(both->rates[1], 0);
  const auto alone = beside(*processes, {&own}, 0);
  ASSERT_TRUE(alone) << alone.error().message;
  EXPECT_EQ(alone->rates.size(), 1U);
}

TEST_F(LoadProcessesTest, NoneIsLeftBehind) {
  auto processes = start(2);
  ASSERT_NE(processes, nullptr);
  const std::vector<pid_t> ids = processes->ids();
  processes.reset();
  for (const pid_t id : ids) EXPECT_FALSE(exists(id)) << "a child that was not collected does";
}

TEST_F(LoadProcessesTest, OneThatEndsByItselfIsAnErrorAndNotAWait) {
  auto processes = start(2);
  ASSERT_NE(processes, nullptr);
  ::kill(processes->ids()[1], SIGKILL);
  const auto seen = processes->beside({}, {}, Milliseconds{20}, 2);
  ASSERT_FALSE(seen);
  EXPECT_EQ(seen.error().code, ErrorCode::io);
  EXPECT_NE(seen.error().message.find("signal 9"), std::string::npos) << seen.error().message;
}

// A process of another parent with the number `id`, until `parent` is killed; absent where the
// system does not allow choosing a number.
struct Stranger {
  explicit Stranger(pid_t id) {
    int ends[2];
    if (pipe(ends) != 0) return;
    parent = fork();
    if (parent == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      clone_args args{};
      args.exit_signal = SIGCHLD;
      args.set_tid = reinterpret_cast<std::uint64_t>(&id);
      args.set_tid_size = 1;
      const long made = syscall(SYS_clone3, &args, sizeof args);
      if (made == 0) prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (made != 0 && write(ends[1], &made, sizeof made) < 0) _exit(1);
      for (;;) pause();
    }
    long made = 0;
    there = read(ends[0], &made, sizeof made) == sizeof made && made == id;
    close(ends[0]);
    close(ends[1]);
  }
  ~Stranger() {
    ::kill(parent, SIGKILL);
    waitpid(parent, nullptr, 0);
  }
  pid_t parent = 0;
  bool there = false;
};

TEST_F(LoadProcessesTest, ReusedProcessNumber_IsNotKilled) {
  auto processes = start(1);
  ASSERT_NE(processes, nullptr);
  const pid_t id = processes->ids()[0];
  ::kill(id, SIGKILL);
  ASSERT_EQ(waitpid(id, nullptr, 0), id);  // as a caller that ignores SIGCHLD
  const Stranger stranger(id);
  if (!stranger.there) GTEST_SKIP() << "numbers of processes cannot be chosen here";
  processes.reset();
  std::this_thread::sleep_for(Milliseconds{100});  // gives it time to end
  // A killed process stays as a zombie until its parent waits, which it never does.
  std::ifstream stat("/proc/" + std::to_string(id) + "/stat");
  const std::string text((std::istreambuf_iterator<char>(stat)), {});
  EXPECT_NE(text.find(") "), std::string::npos) << text;
  EXPECT_EQ(text.find(") Z"), std::string::npos) << text;
}

TEST_F(LoadProcessesTest, CtrlC_IsLeftToTheParent) {
  auto processes = start(1);
  ASSERT_NE(processes, nullptr);
  ::kill(processes->ids()[0], SIGINT);
  const auto seen = beside(*processes, {}, 1);
  EXPECT_TRUE(seen) << seen.error().message;
}

TEST_F(LoadProcessesTest, ACpuThatMayNotBeUsedIsDenied) {
  std::vector<LoadProcess> all;
  all.push_back(copying(60'000));
  const auto made = LoadProcesses::start(std::move(all));
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::denied);
  EXPECT_NE(made.error().message.find("CPU 60000"), std::string::npos);
}

// The parent is killed and cannot clean up.
TEST_F(LoadProcessesTest, TheyEndWithTheirParent) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    const auto processes = start(1);
    const pid_t id = processes == nullptr ? 0 : processes->ids()[0];
    [[maybe_unused]] const ssize_t written = write(ends[1], &id, sizeof id);
    for (;;) pause();
  }
  pid_t id = 0;
  ASSERT_EQ(read(ends[0], &id, sizeof id), static_cast<ssize_t>(sizeof id));
  close(ends[0]);
  close(ends[1]);
  ASSERT_GT(id, 0);
  EXPECT_TRUE(exists(id));
  ::kill(parent, SIGKILL);
  waitpid(parent, nullptr, 0);
  // Its new parent collects it; until then it is a zombie, which runs no more.
  const auto ended = [&] {
    if (!exists(id)) return true;
    std::ifstream stat("/proc/" + std::to_string(id) + "/stat");
    std::string text((std::istreambuf_iterator<char>(stat)), {});
    const std::size_t name = text.rfind(") ");
    return name == std::string::npos || text[name + 2] == 'Z' || text[name + 2] == 'X';
  };
  for (int i = 0; i < 3000 && !ended(); ++i) std::this_thread::sleep_for(Milliseconds{10});
  EXPECT_TRUE(ended());
}

}  // namespace
}  // namespace headrace::instruments
