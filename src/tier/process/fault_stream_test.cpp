// SPDX-License-Identifier: Apache-2.0
#include "tier/process/fault_stream.h"

#include <gtest/gtest.h>
#include <linux/perf_event.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string>

namespace headrace {
namespace {

constexpr std::size_t kRing = 128;

void put(std::array<std::byte, kRing>& ring, std::uint64_t& head, std::uint64_t word) {
  std::memcpy(ring.data() + head % kRing, &word, sizeof word);
  head += sizeof word;
}

std::uint64_t header(std::uint32_t type, std::uint16_t size) {
  return std::uint64_t{size} << 48 | type;
}

TEST(FaultRing, IsReadAcrossItsEnd) {
  std::array<std::byte, kRing> ring{};
  std::uint64_t tail = 0;
  std::uint64_t head = 0;
  std::vector<PageFault> faults;
  // Records of 24 bytes do not divide 128 evenly.
  for (std::uint64_t i = 0; i < 20; ++i) {
    put(ring, head, header(PERF_RECORD_SAMPLE, 24));
    put(ring, head, i % 2 == 0 ? 7 : 8);
    put(ring, head, 0x1000 * i);
    EXPECT_EQ(read_ring(ring, tail, head, 7, faults), 0u);
    EXPECT_EQ(tail, head);
    ASSERT_EQ(faults.size(), i + 1);
    EXPECT_EQ(faults.back().address, 0x1000 * i);
    EXPECT_EQ(faults.back().major, i % 2 == 0);
  }
  put(ring, head, header(PERF_RECORD_LOST, 24));
  put(ring, head, 7);
  put(ring, head, 99);
  put(ring, head, header(PERF_RECORD_EXIT, 16));
  put(ring, head, 0);
  EXPECT_EQ(read_ring(ring, tail, head, 7, faults), 99u);
  EXPECT_EQ(faults.size(), 20u);
}

TEST(FaultStreamHere, TellsTheFaultsOfAChildOrSaysWhyNot) {
  constexpr std::size_t kPages = 64;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* const mapped =
      ::mmap(nullptr, kPages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  (void)::madvise(mapped, kPages * page, MADV_NOHUGEPAGE);
  std::array<int, 2> go{};
  std::array<int, 2> done{};
  ASSERT_EQ(::pipe(go.data()) + ::pipe(done.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);
    char byte = 0;
    if (::read(go[0], &byte, 1) != 1) ::_exit(1);
    for (std::size_t i = 0; i < kPages; ++i) static_cast<volatile char*>(mapped)[i * page] = 1;
    if (::write(done[1], &byte, 1) != 1) ::_exit(1);
    ::_exit(::read(go[0], &byte, 1) == 1 ? 0 : 1);
  }
  FaultStream stream;
  const Status listens = stream.listen(child);
  char byte = 0;
  ASSERT_EQ(::write(go[1], &byte, 1), 1);
  ASSERT_EQ(::read(done[0], &byte, 1), 1);
  std::vector<PageFault> faults;
  stream.take(faults);
  ASSERT_EQ(::write(go[1], &byte, 1), 1);
  int status = 0;
  ::waitpid(child, &status, 0);
  const auto begin = reinterpret_cast<std::uintptr_t>(mapped);
  std::size_t ours = 0;
  for (const PageFault& fault : faults) {
    ours += fault.address >= begin && fault.address < begin + kPages * page ? 1 : 0;
  }
  ::munmap(mapped, kPages * page);
  for (const int each : {go[0], go[1], done[0], done[1]}) ::close(each);
  if (!listens) GTEST_SKIP() << listens.error().message;
  EXPECT_EQ(ours, kPages);
  EXPECT_EQ(stream.listen(child).error().code, ErrorCode::absent);
}

// A thread that does nothing, made without the thread library.
bool begin_thread() {
  constexpr std::size_t kStack = 64 << 10;
  void* const stack =
      ::mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const auto run = [](void*) -> int {
    for (;;) ::syscall(SYS_pause);
  };
  return stack != MAP_FAILED &&
         ::clone(run, static_cast<std::byte*>(stack) + kStack,
                 CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD, nullptr) > 0;
}

TEST(FaultStreamHere, MoreThreadsThanDescriptors_AsManyAreHeardAsThereAreDescriptors) {
  constexpr int kThreads = 80;
  std::array<int, 2> ready{};
  ASSERT_EQ(::pipe(ready.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    bool all = true;
    for (int i = 1; i < kThreads; ++i) all = all && begin_thread();
    if (all) (void)!::write(ready[1], "r", 1);
    ::pause();
    ::_exit(0);
  }
  pollfd begun{.fd = ready[0], .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&begun, 1, 30'000), 1);
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  // Enough for some of them and the descriptors that stay free.
  const rlimit few{static_cast<rlim_t>(ready[1]) + 64 + 60, limit.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &few);
  FaultStream stream;
  Status listens = stream.listen(child);
  const std::string unheard = stream.unheard();
  const int free = ::dup(ready[0]);
  if (listens) listens = stream.listen(child);
  ::close(free);
  ::setrlimit(RLIMIT_NOFILE, &limit);
  const Status again = stream.listen(child);
  const std::string all = stream.unheard();
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  for (const int each : ready) ::close(each);
  EXPECT_GE(free, 0);
  if (!listens && listens.error().code != ErrorCode::exhausted) {
    GTEST_SKIP() << listens.error().message;
  }
  ASSERT_TRUE(listens) << listens.error().message;
  EXPECT_NE(unheard.find("of 80 threads"), std::string::npos) << unheard;
  EXPECT_NE(unheard.find("ulimit -n"), std::string::npos) << unheard;
  EXPECT_TRUE(again);
  EXPECT_EQ(all, "") << "with descriptors for all of them";
}

}  // namespace
}  // namespace headrace
