// SPDX-License-Identifier: Apache-2.0
#include "tier/process/other_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "core/text/files.h"
#include "tests/support/child.h"
#include "tier/process/process_nodes.h"

namespace headrace {
namespace {

TEST(OtherProcessText, StateIsReadBehindAnyName) {
  const auto state = parse_state(
      "12 (a) b (c)) S 1 12 12 0 -1 4194560 100 0 42 0 150 50 0 0 20 0 3 0 777 1000 250 "
      "18446744073709551615 94000 95000 140000 0 0",
      100);
  ASSERT_TRUE(state) << state.error().message;
  EXPECT_EQ(state->started, 777u);
  EXPECT_EQ(state->start_code, 94000u);
  EXPECT_EQ(state->cpu, std::chrono::seconds{2});
  EXPECT_EQ(state->major_faults, 42u);
  EXPECT_EQ(state->threads, 3u);
  EXPECT_EQ(state->resident.value, 250u * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)));
  EXPECT_EQ(parse_state("12 (x) Z 1", 100).error().code, ErrorCode::absent);
  EXPECT_EQ(parse_state("", 100).error().code, ErrorCode::invalid);
}

TEST(OtherProcessText, MemoryIsPrivateWrittenAndOfNoFile) {
  const auto memory = parse_memory(
      "1000-2000 rw-p 00000000 00:00 0 [heap]\n"
      "2000-4000 rw-p 00000000 00:00 0 \n"
      "5000-6000 rw-p 00000000 fe:00 123 /lib/x.so\n"
      "6000-7000 rw-s 00000000 00:01 0 \n"
      "7000-8000 r--p 00000000 00:00 0 \n"
      "8000-9000 rw-p 00000000 00:00 0 [anon: arena]\n"
      "9000-a000 rw-p 00000000 00:00 0 [stack]\n"
      "a000-b000 rw-p 00000000 00:00 0 [vvar]\n"
      "b000-c000 rw-p 00000000 00:0f 55 /anon_hugepage (deleted)\n"
      "nonsense\n");
  EXPECT_EQ(memory, (std::vector<TrackedRange>{{0x1000, 0x4000}, {0x8000, 0x9000}}));
}

TEST(OtherProcessText, HolesAreLeftOut) {
  const std::vector<TrackedRange> ranges{{10, 20}, {30, 40}};
  EXPECT_EQ(without(ranges, {}), ranges);
  const std::vector<TrackedRange> holes{{5, 12}, {14, 16}, {18, 35}, {40, 50}};
  EXPECT_EQ(without(ranges, holes), (std::vector<TrackedRange>{{12, 14}, {16, 18}, {35, 40}}));
}

TEST(OtherProcessText, FilesOfThoseWhoShareThePageTableForbidClearing) {
  for (const char* const forbids :
       {"/proc/12/clear_refs", "anon_inode:kvm-vm", "/dev/kfd", "/dev/nvidia-uvm",
        "/dev/nvidia-uvm-tools", "/dev/dri/renderD128", "/dev/infiniband/uverbs0"}) {
    EXPECT_FALSE(forbids_clearing(forbids).empty()) << forbids;
  }
  for (const char* const none :
       {"", "/dev/null", "anon_inode:[eventpoll]", "anon_inode:kvm-vcpu:0", "socket:[1]",
        "/home/user/dev/kfd", "/proc/12/clear_refs.txt", "/dev/nvidiactl"}) {
    EXPECT_TRUE(forbids_clearing(none).empty()) << none;
  }
}

TEST(OtherProcessHere, NoDescriptorLeft_IsNotTakenForAnEndOfTheProcess) {
  test::SleepingChild child;
  auto process = open_process(child.pid());
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const int next = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::close(next);
  const rlimit none{static_cast<rlim_t>(next), limit.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &none);
  const auto state = process ? (*process)->state() : Unexpected(process.error());
  const auto memory = process ? (*process)->memory() : Unexpected(process.error());
  const Status listens = process ? (*process)->listen() : Unexpected(process.error());
  ::setrlimit(RLIMIT_NOFILE, &limit);
  child.end();
  if (!process) GTEST_SKIP() << process.error().message;
  for (const Error& error : {state.error(), memory.error(), listens.error()}) {
    EXPECT_EQ(error.code, ErrorCode::exhausted) << error.message;
  }
}

TEST(OtherProcessHere, RefusesWhatIsNone) {
  EXPECT_EQ(open_process(::getpid()).error().code, ErrorCode::invalid);
  for (const int none : {0, -3, 999'999'999}) {
    EXPECT_EQ(open_process(none).error().code, ErrorCode::absent) << none;
  }
}

TEST(OtherProcessHere, ThreadsOfTheKernelHaveNoMemory) {
  if (first_line("/proc/2/stat").find("(kthreadd)") == std::string::npos || ::geteuid() != 0) {
    GTEST_SKIP() << "takes root, and a host whose process 2 is of the kernel";
  }
  EXPECT_EQ(open_process(2).error().code, ErrorCode::unsupported);
}

TEST(OtherProcessHere, ReservedAddressesAreNoMemory) {
  constexpr std::size_t kReserved = std::size_t{64} << 30;
  void* const reserved = ::mmap(nullptr, kReserved, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(reserved, MAP_FAILED);
  const auto begin = reinterpret_cast<std::uintptr_t>(reserved);
  static_cast<volatile char*>(reserved)[kReserved / 2] = 1;
  test::SleepingChild child;
  const auto process = open_process(child.pid());
  const auto memory = process ? (*process)->memory() : Unexpected(process.error());
  child.end();
  ::munmap(reserved, kReserved);
  if (!memory) GTEST_SKIP() << memory.error().message;
  std::uint64_t inside = 0;
  bool there = false;
  for (const TrackedRange& range : *memory) {
    if (range.end <= begin || range.begin >= begin + kReserved) continue;
    inside += range.end - range.begin;
    there = there || (range.begin <= begin + kReserved / 2 && range.end > begin + kReserved / 2);
  }
  EXPECT_TRUE(there);
  if (inside > kReserved / 2) GTEST_SKIP() << "the kernel cannot list pages by their state";
  EXPECT_LE(inside, std::uint64_t{2} << 30);
}

// The child touches one of two mappings, and writes every third page of it.
TEST(OtherProcessHere, TellsWhatIsUsed) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  constexpr std::size_t kPages = 30;
  struct Shared {
    volatile int asked, done;
  };
  auto* const shared = static_cast<Shared*>(
      ::mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  std::array<volatile char*, 2> memory{};
  for (std::size_t i = 0; i < memory.size(); ++i) {
    void* const mapped =
        ::mmap(nullptr, kPages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(mapped, MAP_FAILED);
    // Keeps the kernel from merging the two.
    (void)::madvise(mapped, kPages * page, i == 0 ? MADV_DONTDUMP : MADV_NOHUGEPAGE);
    memory[i] = static_cast<volatile char*>(mapped);
  }
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    for (const auto each : memory) {
      for (std::size_t i = 0; i < kPages; ++i) each[i * page] = 1;
    }
    shared->done = 1;
    while (shared->asked == 0) ::usleep(1000);
    for (std::size_t i = 0; i < kPages; ++i) (void)memory[0][i * page];
    for (std::size_t i = 0; i < kPages; i += 3) memory[0][i * page] = 2;
    shared->done = 2;
    ::pause();
    ::_exit(0);
  }
  const auto until = [&](int value) {
    for (int i = 0; i < 5000 && shared->done != value; ++i) ::usleep(1000);
    return shared->done == value;
  };
  EXPECT_TRUE(until(1));
  auto process = open_process(child);
  const Status forgot = process ? (*process)->forget_use() : Unexpected(process.error());
  shared->asked = 1;
  EXPECT_TRUE(until(2));
  const auto use = process ? (*process)->use() : Unexpected(process.error());
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  std::array<MappingUse, 2> found;
  for (std::size_t i = 0; i < memory.size(); ++i) {
    const auto begin = reinterpret_cast<std::uintptr_t>(memory[i]);
    ::munmap(const_cast<char*>(memory[i]), kPages * page);
    if (!use) continue;
    for (const MappingUse& each : *use) {
      if (each.begin == begin) found[i] = each;
    }
  }
  ::munmap(shared, page);
  if (!forgot || !use) GTEST_SKIP() << (forgot ? use.error() : forgot.error()).message;
  if (found[0].touched.value == 0) GTEST_SKIP() << "the kernel keeps no account of accesses";
  EXPECT_EQ(found[0].touched.value, kPages * page);
  EXPECT_EQ(found[0].present.value, kPages * page);
  EXPECT_EQ(found[1].present.value, kPages * page);
  EXPECT_EQ(found[1].touched.value, 0u);
  EXPECT_TRUE(found[1].written.empty());
  if (found[0].written.empty()) GTEST_SKIP() << "the kernel has no soft-dirty bits to list";
  ASSERT_EQ(found[0].written.size(), kPages / 3);
  for (std::size_t i = 0; i < kPages / 3; ++i) {
    const std::uintptr_t at = found[0].begin + 3 * i * page;
    EXPECT_EQ(found[0].written[i], (TrackedRange{at, at + page})) << i;
  }
}

TEST(OtherProcessHere, IsHeldByOneOnly) {
  test::SleepingChild child;
  auto one = open_process(child.pid());
  const auto two = open_process(child.pid());
  const bool had = one.has_value();
  if (had) one->reset();
  const auto three = open_process(child.pid());
  child.end();
  if (!had) GTEST_SKIP() << one.error().message;
  ASSERT_FALSE(two);
  EXPECT_EQ(two.error().code, ErrorCode::exhausted) << two.error().message;
  EXPECT_TRUE(three) << three.error().message;
}

TEST(OtherProcessHere, ProcessThatUsesItsBits_KeepsThem) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const int opened = ::open("/proc/self/clear_refs", O_WRONLY);
    (void)!::write(ready[1], &opened, sizeof opened);
    ::pause();
    ::_exit(0);
  }
  int opened = -1;
  EXPECT_EQ(::read(ready[0], &opened, sizeof opened), static_cast<ssize_t>(sizeof opened));
  auto process = open_process(child);
  const Status forgot = process ? (*process)->forget_use() : Unexpected(process.error());
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  for (const int each : ready) ::close(each);
  if (!process || opened < 0) GTEST_SKIP() << "another process is not to be looked at here";
  ASSERT_FALSE(forgot);
  EXPECT_EQ(forgot.error().code, ErrorCode::unsupported) << forgot.error().message;
}

// Makes a child with that number; -1: impossible here.
pid_t fork_as(pid_t number) {
  clone_args args{};
  args.exit_signal = SIGCHLD;
  args.set_tid = reinterpret_cast<std::uint64_t>(&number);
  args.set_tid_size = 1;
  const auto child = static_cast<pid_t>(::syscall(SYS_clone3, &args, sizeof args));
  if (child == 0) {
    for (;;) ::syscall(SYS_pause);
  }
  return child;
}

TEST(OtherProcessHere, LaterProcessWithTheSameNumber_IsNotTouched) {
  test::SleepingChild child;
  const auto process = open_process(child.pid());
  const auto kernel = kernel_of(child.pid());
  child.end();
  const pid_t other = fork_as(child.pid());
  if (other < 0) GTEST_SKIP() << "takes root (CAP_CHECKPOINT_RESTORE), and a free number";
  ASSERT_TRUE(process) << process.error().message;
  const auto state = (*process)->state();
  const auto use = (*process)->use();
  const auto forgot = (*process)->forget_use();
  const std::int64_t moved = kernel->move_pages({}, nullptr, nullptr);
  ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
  ASSERT_EQ(other, child.pid());
  ASSERT_FALSE(state);
  EXPECT_EQ(state.error().code, ErrorCode::absent);
  EXPECT_FALSE(use);
  ASSERT_FALSE(forgot);
  EXPECT_EQ(forgot.error().code, ErrorCode::absent);
  EXPECT_EQ(moved, -ESRCH);
}

TEST(OtherProcessHere, TellsThatItHasEnded) {
  test::SleepingChild child;
  auto process = open_process(child.pid());
  const auto state = process ? (*process)->state() : Unexpected(process.error());
  child.end();
  if (!process) GTEST_SKIP() << process.error().message;
  EXPECT_TRUE(state);
  EXPECT_EQ((*process)->state().error().code, ErrorCode::absent);
  const std::vector<TrackedRange> some{{0x10000, 0x20000}};
  const std::vector<std::uintptr_t> page{0x10000};
  const Status paged = (*process)->page_out(some);
  ASSERT_FALSE(paged);
  EXPECT_TRUE(paged.error().code == ErrorCode::absent || paged.error().code == ErrorCode::denied);
  EXPECT_FALSE((*process)->bring_in(page));
}

}  // namespace
}  // namespace headrace
