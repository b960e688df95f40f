// SPDX-License-Identifier: Apache-2.0
#include "host/settings/guardian.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>

#include "headrace/clock.h"
#include "host/settings/becomes_testing.h"
#include "host/settings/state_file.h"
#include "tests/support/child.h"
#include "tests/support/folder.h"

namespace headrace {
namespace {

using std::chrono::milliseconds;
using std::filesystem::path;

TEST(LimitText, TheLastWordOfTheFirstLineCounts) {
  EXPECT_EQ(limit_in("104857600\n"), 104857600u);
  EXPECT_EQ(limit_in("oom_kill_disable 1\nunder_oom 0\n"), 1u);
  EXPECT_EQ(limit_in("0"), 0u);
  for (const char* const none :
       {"max\n", "", "\n", "9223372036854771712", "99999999999999999999"}) {
    EXPECT_EQ(limit_in(none), kNoLimit) << none;
  }
}

// A limit, and the setting made before it, as files.
class Guarded : public testing::Test {
 protected:
  void SetUp() override {
    write(first(), "oom_kill_disable 0\nunder_oom 0\n");
    write(limit(), "max\n");
    auto state = open_locked(state_file(), LOCK_EX);
    ASSERT_TRUE(state) << state.error().message;
    state_ = *std::move(state);
  }
  path first() const { return directory_ / "first"; }
  path limit() const { return directory_ / "limit"; }
  path state_file() const { return directory_ / "state"; }
  void write(const path& file, std::string_view text) const { std::ofstream(file) << text; }
  std::string value(const path& file) const { return HostFiles().text(file.relative_path()); }
  std::unique_ptr<Guardian> start() const {
    auto guardian = Guardian::start(state_, {{first(), "0"}, {limit(), "max"}});
    return guardian ? *std::move(guardian) : nullptr;
  }
  // For a child of the test: with a lock and a limit of its own.
  std::unique_ptr<Guardian> start_in_child() {
    state_.forget();  // fork() has closed it
    auto state = open_locked(directory_ / "of_child", LOCK_EX);
    auto guardian = Guardian::start(*state, {{limit(), "max"}});
    if (!guardian) ::_exit(1);
    state_ = *std::move(state);
    (*guardian)->expect(0, 100);
    write(limit(), "100");
    return *std::move(guardian);
  }
  bool is_free() const {
    return open_locked(directory_ / "of_child", LOCK_EX | LOCK_NB).has_value();
  }
  void set(Guardian& guardian, std::size_t which, std::uint64_t to) const {
    guardian.expect(which, to);
    write(which == 0 ? first() : limit(), std::to_string(to));
  }
  const test::TestFolder folder_;
  const path directory_ = folder_.root();
  OwnDescriptor state_;
};

TEST_F(Guarded, SilentParent_LimitsArePutBackAndMayBeSetAgain) {
  const auto guardian = start();
  ASSERT_NE(guardian, nullptr);
  EXPECT_FALSE(guardian->has_lifted());
  for (const std::uint64_t size : {100, 200}) {
    set(*guardian, 0, 1);
    set(*guardian, 1, size);
    guardian->beat();
    ASSERT_TRUE(becomes_so([&] { return value(limit()) == "max" && value(first()) == "0"; }));
    EXPECT_TRUE(becomes_so([&] { return guardian->has_lifted(); }));
  }
  EXPECT_FALSE(guardian->ended());
}

TEST_F(Guarded, BeatingParent_LimitStays) {
  const auto guardian = start();
  ASSERT_NE(guardian, nullptr);
  set(*guardian, 1, 100);
  Nanoseconds last = system_clock().now();
  Nanoseconds longest{};
  for (int i = 0; i < 60; ++i) {
    guardian->beat();
    longest = std::max(longest, system_clock().now() - std::exchange(last, system_clock().now()));
    ::usleep(50'000);
  }
  longest = std::max(longest, system_clock().now() - last);
  if (longest > Guardian::kMostSilence / 2) GTEST_SKIP() << "this test itself was silent";
  EXPECT_EQ(value(limit()), "100");
  EXPECT_FALSE(guardian->has_lifted());
}

TEST_F(Guarded, ValueOfSomebodyElse_Stays) {
  const auto guardian = start();
  ASSERT_NE(guardian, nullptr);
  set(*guardian, 0, 1);
  set(*guardian, 1, 100);
  write(limit(), "70");
  EXPECT_TRUE(becomes_so([&] { return value(first()) == "0"; }));
  EXPECT_EQ(value(limit()), "70");
}

TEST_F(Guarded, WriteThatIsAnnouncedAndNotDone_ValueBeforeItIsPutBack) {
  const auto guardian = start();
  ASSERT_NE(guardian, nullptr);
  set(*guardian, 1, 100);
  guardian->expect(1, 200);
  EXPECT_TRUE(becomes_so([&] { return value(limit()) == "max"; }));
}

TEST_F(Guarded, LimitThatHasGone_TheOtherIsPutBack) {
  const auto guardian = start();
  ASSERT_NE(guardian, nullptr);
  set(*guardian, 0, 1);
  std::filesystem::remove(limit());
  EXPECT_TRUE(becomes_so([&] { return value(first()) == "0"; }));
}

// The parent is a child of the test. It is killed, so that its destructors undo nothing.
TEST_F(Guarded, KilledParent_LimitIsPutBackBeforeTheLockIsFree) {
  std::array<int, 2> told{};
  ASSERT_EQ(::pipe(told.data()), 0);
  const pid_t parent = ::fork();
  if (parent == 0) {
    const auto guardian = start_in_child();
    const int pid = guardian->pid();
    (void)!::write(told[1], &pid, sizeof pid);
    for (;;) ::pause();
  }
  int pid = -1;
  ASSERT_EQ(::read(told[0], &pid, sizeof pid), static_cast<ssize_t>(sizeof pid));
  EXPECT_FALSE(is_free());
  ::kill(pid, SIGINT);  // as Ctrl-C does; it must not reach the guardian
  ::kill(pid, SIGTERM);
  ::kill(parent, SIGKILL);
  ::waitpid(parent, nullptr, 0);
  EXPECT_TRUE(becomes_so([&] { return is_free(); }));
  EXPECT_EQ(value(limit()), "max");
  for (const int each : told) ::close(each);
}

// The executed program does not know the limit, and may run for days.
TEST_F(Guarded, ParentThatBecomesAnotherProgram_LimitIsPutBackAndTheLockIsFree) {
  const pid_t parent = ::fork();
  if (parent == 0) {
    const auto guardian = start_in_child();
    ::execl("/bin/sleep", "sleep", "60", nullptr);
    ::_exit(1);
  }
  const path name = "/proc/" + std::to_string(parent) + "/comm";
  EXPECT_TRUE(becomes_so([&] { return value(name) == "sleep"; }));
  EXPECT_TRUE(becomes_so([&] { return value(limit()) == "max" && is_free(); }));
  EXPECT_EQ(::waitpid(parent, nullptr, WNOHANG), 0) << "it runs";
  ::kill(parent, SIGKILL);
  ::waitpid(parent, nullptr, 0);
}

TEST_F(Guarded, DescriptorsInThePlaceOfStandardInput_AreNoTrouble) {
  EXPECT_EQ(test::status_of_child([&] {
              for (const int each : {0, 1, 2}) ::close(each);
              Guardian* const guardian = start_in_child().release();  // it stays behind
              for (int i = 0; i < 10; ++i) {
                ::usleep(50'000);
                guardian->beat();
              }
              return !guardian->ended();
            }),
            0);
  EXPECT_TRUE(becomes_so([&] { return value(limit()) == "max"; }));
}

TEST_F(Guarded, PipesOfTheParent_AreNotKeptOpen) {
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  const auto guardian = start();
  ASSERT_NE(guardian, nullptr);
  ::close(pipe[1]);
  pollfd end{.fd = pipe[0], .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&end, 1, 20'000), 1);
  ::close(pipe[0]);
}

TEST_F(Guarded, KilledGuardian_IsNoticedAndLeavesNoProcess) {
  auto guardian = start();
  ASSERT_NE(guardian, nullptr);
  EXPECT_FALSE(guardian->ended());
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "the program waits for children of its own";
  const int pid = guardian->pid();
  ::kill(pid, SIGKILL);
  EXPECT_TRUE(becomes_so([&] { return guardian->ended(); }));
  guardian.reset();
  EXPECT_EQ(::waitpid(pid, nullptr, __WALL), -1);
}

TEST_F(Guarded, StoppedGuardian_EndsAllTheSame) {
  auto guardian = start();
  ASSERT_NE(guardian, nullptr);
  const int pid = guardian->pid();
  ::kill(pid, SIGSTOP);
  guardian.reset();
  EXPECT_EQ(::kill(pid, 0), -1);
}

}  // namespace
}  // namespace headrace
