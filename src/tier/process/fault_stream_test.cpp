// SPDX-License-Identifier: Apache-2.0
#include "tier/process/fault_stream.h"

#include <gtest/gtest.h>
#include <linux/perf_event.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>

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
  // Records of 24 bytes do not fill 128 evenly.
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

}  // namespace
}  // namespace headrace
