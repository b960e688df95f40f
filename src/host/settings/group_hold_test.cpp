// SPDX-License-Identifier: Apache-2.0
#include "host/settings/group_hold.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <optional>

#include "host/settings/becomes_testing.h"
#include "tests/support/expect.h"
#include "tests/support/folder.h"

namespace headrace {
namespace {

using std::filesystem::path;

constexpr int kPid = 4711;
constexpr const char* kHuge = "9223372036854771712";

// Cgroups as the kernel shows them, with a process in one.
class HeldGroup : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    group_ = first() ? "sys/fs/cgroup/memory/a/b" : "sys/fs/cgroup/a/b";
    write("proc/4711/cgroup", first() ? "4:memory:/a/b\n0::/\n" : "0::/a/b\n");
    uses(600_MiB, 500_MiB, 0_B);
    write(group_ / "cgroup.procs", "4711\n");
    write(limit(), first() ? kHuge : "max");
    if (first()) {
      write(group_ / "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\n");
      write(group_ / "memory.memsw.limit_in_bytes", kHuge);
      write(group_ / "memory.swappiness", "60");
    } else {
      write(group_ / "memory.swap.max", "max");
    }
  }
  bool first() const { return GetParam() == 1; }
  path limit() const { return group_ / (first() ? "memory.limit_in_bytes" : "memory.high"); }
  void write(const path& file, std::string_view text) const { folder_.write(file, text); }
  // Memory of the group; anonymous and locked memory of its process; swap cache, and its mapped
  // part.
  void uses(Bytes all, Bytes anonymous, Bytes locked, Bytes cached = 0_B,
            Bytes mapped = 0_B) const {
    write(group_ / "memory.stat",
          fmt::format("{} {}\nswapcached {}\nfile 2\nshmem 4096\ninactive_anon {}\n"
                      "active_anon 4096\n",
                      first() ? "rss" : "anon", anonymous.value, (cached + mapped).value,
                      (anonymous + cached).value));
    write(group_ / (first() ? "memory.usage_in_bytes" : "memory.current"),
          std::to_string(all.value));
    write("proc/4711/status",
          fmt::format("VmLck:\t{} kB\nRssAnon:\t{} kB\n", locked / 1_KiB, anonymous / 1_KiB));
  }
  std::string value(const path& file) const {
    return HostFiles().text((root_ / file).relative_path());
  }
  Bytes limited() const { return {std::stoull(value(limit()))}; }
  // Number of files that record settings to restore.
  int notes() const {
    int count = 0;
    for (const auto& each : std::filesystem::directory_iterator(root_)) {
      count += each.path().filename().native().starts_with("group-") ? 1 : 0;
    }
    return count;
  }
  auto take() const { return GroupHold::take(kPid, root_, root_); }
  void expect_refused(ErrorCode code, const char* word) const {
    test::expect_refused(take(), code, word);
  }
  const test::TestFolder folder_;
  const path root_ = folder_.root();
  path group_;
};

// The group of that name in our namespace is another one.
TEST_P(HeldGroup, ProcessOutsideOurNamespace_IsRefused) {
  write("proc/4711/cgroup", first() ? "4:memory:/../a/b\n0::/\n" : "0::/../a/b\n");
  expect_refused(ErrorCode::unsupported, "no memory cgroup");
}

TEST_P(HeldGroup, UseAboveTheBudget_LimitFallsWithItAndIncludesUnmanagedMemory) {
  {
    auto held = take();
    ASSERT_TRUE(held) << held.error().message;
    EXPECT_NE(held->note().find(limit().filename()), std::string::npos);
    ASSERT_TRUE(held->keep(300_MiB));
    EXPECT_EQ(limited(), 600_MiB) << "what it has by now";
    if (first()) {
      EXPECT_EQ(value(group_ / "memory.oom_control"), "1");
    }
    uses(500_MiB, 380_MiB, 0_B);
    ASSERT_TRUE(held->keep(300_MiB));
    EXPECT_EQ(limited(), 500_MiB);
    uses(550_MiB, 430_MiB, 0_B);
    ASSERT_TRUE(held->keep(300_MiB));
    EXPECT_EQ(limited(), 500_MiB) << "what it once came down to";
    uses(400_MiB, 250_MiB, 0_B);
    ASSERT_TRUE(held->keep(300_MiB));
    EXPECT_EQ(limited(), 450_MiB) << "the budget, and 150 MiB of other kinds";
    uses(400_MiB, 250_MiB, 50_MiB);
    ASSERT_TRUE(held->keep(300_MiB));
    EXPECT_EQ(limited(), 500_MiB) << "locked memory cannot go out";
    uses(500_MiB, 250_MiB, 0_B, 100_MiB);
    ASSERT_TRUE(held->keep(300_MiB));
    EXPECT_EQ(limited(), 450_MiB) << "what is out is to give its pages back";
    uses(500_MiB, 250_MiB, 0_B, 100_MiB, 100_MiB);
    ASSERT_TRUE(held->keep(300_MiB));
    EXPECT_EQ(limited(), 450_MiB) << "what came back by a read counts once";
    ASSERT_TRUE(held->keep({}));
    EXPECT_EQ(value(limit()), first() ? kHuge : "max") << "let go";
    uses(600_MiB, 500_MiB, 0_B);
    ASSERT_TRUE(held->keep(300_MiB));
    EXPECT_EQ(limited(), 600_MiB) << "anew";
  }
  EXPECT_EQ(value(limit()), first() ? kHuge : "max");
  if (first()) {
    EXPECT_EQ(value(group_ / "memory.oom_control"), "0");
  }
  EXPECT_FALSE(restore_groups(root_));
  EXPECT_EQ(notes(), 0);
}

TEST_P(HeldGroup, AGroupIsHeldOnce) {
  write("proc/4712/cgroup", value("proc/4711/cgroup"));
  write(group_ / "cgroup.procs", "");
  {
    auto held = take();
    ASSERT_TRUE(held);
    ASSERT_TRUE(held->keep(300_MiB));
    const pid_t other = ::fork();
    if (other == 0) {
      const auto again = GroupHold::take(4712, root_, root_);
      const bool refused = !again && again.error().code == ErrorCode::exhausted &&
                           again.error().message.find("another headrace tier") != std::string::npos;
      ::_exit(refused ? 0 : 1);
    }
    // The other holder waits a second, after which the limit of a silent holder is lifted.
    int status = -1;
    while (::waitpid(other, &status, WNOHANG) == 0) {
      EXPECT_TRUE(held->keep(300_MiB));
      ::usleep(50'000);
    }
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(value(limit()), first() ? kHuge : "max");
  EXPECT_TRUE(GroupHold::take(4712, root_, root_));
}

TEST_P(HeldGroup, ForeignLimit_StaysIfLowerOrSetMeanwhile) {
  write(limit(), "104857600");
  {
    auto held = take();
    ASSERT_TRUE(held);
    ASSERT_TRUE(held->keep(300_MiB));
    EXPECT_EQ(value(limit()), "104857600");
    write(limit(), "734003200");
    uses(300_MiB, 300_MiB, 0_B);
    ASSERT_TRUE(held->keep(300_MiB)) << "nothing to change";
    ASSERT_TRUE(held->keep({}));
  }
  EXPECT_EQ(value(limit()), "734003200");
  {
    auto held = take();
    ASSERT_TRUE(held->keep(100_MiB));
    write(limit(), "838860800");
    uses(200_MiB, 150_MiB, 0_B);
    test::expect_refused(held->keep(100_MiB), ErrorCode::denied, "another program");
  }
  EXPECT_EQ(value(limit()), "838860800");
}

TEST_P(HeldGroup, SettingsOfAKilledHolder_AreRestoredByTheNext) {
  const pid_t child = ::fork();
  if (child == 0) {
    auto held = take();
    if (held) (void)held->keep(300_MiB);
    ::kill(held->guardian(), SIGKILL);  // otherwise it would restore the limit
    ::waitpid(held->guardian(), nullptr, __WALL);
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  ASSERT_EQ(limited(), 600_MiB);
  EXPECT_TRUE(restore_groups(root_));
  EXPECT_EQ(value(limit()), first() ? kHuge : "max");
  if (first()) {
    EXPECT_EQ(value(group_ / "memory.oom_control"), "0");
  }
  EXPECT_FALSE(restore_groups(root_)) << "once";
  auto held = take();
  ASSERT_TRUE(held);
  ASSERT_TRUE(held->keep(300_MiB));
  EXPECT_FALSE(restore_groups(root_)) << "held";
  EXPECT_EQ(limited(), 600_MiB);
}

// A holder in a child of the test, which renews the limit ten times a second.
class Holder {
 public:
  explicit Holder(const std::function<Result<GroupHold>()>& take) : pid_(::fork()) {
    if (pid_ != 0) return;
    auto held = take();
    while (held && held->keep(300_MiB)) ::usleep(100'000);
    ::_exit(1);
  }
  ~Holder() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;
  int pid() const { return pid_; }

 private:
  const pid_t pid_;
};

TEST_P(HeldGroup, StoppedHolder_LimitIsLiftedAndHeldAgainWhenItGoesOn) {
  const auto lifted = [&] {
    return value(limit()) == (first() ? kHuge : "max") &&
           (!first() || value(group_ / "memory.oom_control") == "0");
  };
  if (first()) write(group_ / "memory.oom_control", "0");
  const Holder holder([&] { return take(); });
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(becomes_so([&] { return value(limit()) == std::to_string((600_MiB).value); }));
    if (first()) {
      EXPECT_TRUE(becomes_so([&] { return value(group_ / "memory.oom_control") == "1"; }));
    }
    ::kill(holder.pid(), SIGSTOP);
    ASSERT_TRUE(becomes_so(lifted)) << "nobody looks at the program";
    ::kill(holder.pid(), SIGCONT);
  }
}

TEST_P(HeldGroup, KilledHolder_LimitIsLiftedWithoutANextOne) {
  const auto is_held = [&] { return value(limit()) == std::to_string((600_MiB).value); };
  {
    const Holder holder([&] { return take(); });
    ASSERT_TRUE(becomes_so(is_held));
  }
  EXPECT_TRUE(becomes_so([&] { return value(limit()) == (first() ? kHuge : "max"); }));
  EXPECT_TRUE(becomes_so([&] { return take().has_value(); })) << "and nobody holds it";
}

TEST_P(HeldGroup, KilledGuardian_EndsTheHold) {
  auto held = take();
  ASSERT_TRUE(held);
  ASSERT_TRUE(held->keep(300_MiB));
  ::kill(held->guardian(), SIGKILL);
  Status kept;
  EXPECT_TRUE(becomes_so([&] { return !(kept = held->keep(300_MiB)); }));
  EXPECT_EQ(kept.error().code, ErrorCode::denied);
  EXPECT_TRUE(held->keep({}));
  EXPECT_EQ(value(limit()), first() ? kHuge : "max");
}

// The holder may open no file any more; its guardian, which is older, may.
TEST_P(HeldGroup, SettingTheHolderCannotRestore_IsRestoredByTheGuardian) {
  auto taken = take();
  ASSERT_TRUE(taken);
  std::optional<GroupHold> held(*std::move(taken));
  ASSERT_TRUE(held->keep(300_MiB));
  ASSERT_EQ(limited(), 600_MiB);
  rlimit files{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &files), 0);
  const rlimit standard{.rlim_cur = 3, .rlim_max = files.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &standard);
  held.reset();
  ::setrlimit(RLIMIT_NOFILE, &files);
  EXPECT_TRUE(becomes_so([&] { return value(limit()) == (first() ? kHuge : "max"); }));
  EXPECT_TRUE(becomes_so([&] { return take().has_value(); })) << "and nobody holds it";
}

TEST_P(HeldGroup, SettingThatCannotBeRestored_StaysRecorded) {
  const path away = root_ / "away";
  {
    auto held = take();
    ASSERT_TRUE(held);
    ASSERT_TRUE(held->keep(300_MiB));
    std::filesystem::rename(root_ / limit(), away);
  }
  EXPECT_FALSE(restore_groups(root_));
  EXPECT_EQ(notes(), 1);
  std::filesystem::rename(away, root_ / limit());
  EXPECT_EQ(limited(), 600_MiB);
  EXPECT_TRUE(restore_groups(root_));
  EXPECT_EQ(value(limit()), first() ? kHuge : "max");
  EXPECT_EQ(notes(), 0);
  {
    auto held = take();
    ASSERT_TRUE(held);
    ASSERT_TRUE(held->keep(300_MiB));
    std::filesystem::rename(root_ / group_, away);
  }
  EXPECT_EQ(notes(), 0) << "a group that has gone";
}

TEST_P(HeldGroup, UnholdableGroup_IsExplained) {
  write(group_ / "cgroup.procs", "4711\n4712\n");
  expect_refused(ErrorCode::denied, "with 1 more");
  write(group_ / "cgroup.procs", "4711\n");
  std::filesystem::create_directory(root_ / group_ / "below");
  expect_refused(ErrorCode::denied, "with 1 more");
  std::filesystem::remove(root_ / group_ / "below");
  const path swappiness = first() ? group_ / "memory.swappiness" : "proc/sys/vm/swappiness";
  write(swappiness, "0\n");
  expect_refused(ErrorCode::denied, first() ? "(memory.swappiness" : "(vm.swappiness");
  write(swappiness, "60\n");
  const path swap = first() ? "memory.memsw.limit_in_bytes" : "memory.swap.max";
  write(group_.parent_path() / swap, "0");
  expect_refused(ErrorCode::denied, "limits swap");
  std::filesystem::remove(root_ / limit());
  expect_refused(ErrorCode::unsupported, "takes no limit");
  std::filesystem::remove_all(root_ / "proc");
  expect_refused(ErrorCode::unsupported, "no memory cgroup");
}

INSTANTIATE_TEST_SUITE_P(Versions, HeldGroup, testing::Values(1, 2),
                         [](const auto& version) { return fmt::format("V{}", version.param); });

}  // namespace
}  // namespace headrace
