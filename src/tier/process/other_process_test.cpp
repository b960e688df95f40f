#include "tier/process/other_process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/text/files.h"

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
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  const auto process = open_process(child);
  const auto memory = process ? (*process)->memory() : std::unexpected(process.error());
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
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

TEST(OtherProcessHere, TellsThatItHasEnded) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  auto process = open_process(child);
  const auto state = process ? (*process)->state() : std::unexpected(process.error());
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!process) GTEST_SKIP() << process.error().message;
  EXPECT_TRUE(state);
  EXPECT_EQ((*process)->state().error().code, ErrorCode::absent);
  const std::vector<TrackedRange> some{{0x10000, 0x20000}};
  const std::vector<std::uintptr_t> page{0x10000};
  const auto paged = (*process)->page_out(some);
  ASSERT_FALSE(paged);
  EXPECT_TRUE(paged.error().code == ErrorCode::absent || paged.error().code == ErrorCode::denied);
  EXPECT_FALSE((*process)->bring_in(page));
}

}  // namespace
}  // namespace headrace
