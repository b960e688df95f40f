// SPDX-License-Identifier: Apache-2.0
#include "backend/dsa/queue/pages.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <limits>
#include <memory>

namespace headrace::dsa {
namespace {

constexpr std::size_t kPageBytes = 4096;

class PagesTest : public testing::Test {
 protected:
  ~PagesTest() override { munmap(base_, 4 * kPageBytes); }

  std::uint64_t at(std::size_t offset) const {
    return reinterpret_cast<std::uintptr_t>(base_) + offset;
  }
  void protect(std::size_t page, int protection) {
    ASSERT_EQ(mprotect(static_cast<char*>(base_) + page * kPageBytes, kPageBytes, protection), 0);
  }
  bool present(std::size_t page) const {
    std::array<unsigned char, 4> in{};
    mincore(base_, 4 * kPageBytes, in.data());
    return (in[page] & 1) != 0;
  }
  // Copies from, and to, a byte range; all other pages are present.
  static Status written(std::uint64_t address, std::uint64_t bytes,
                        std::uint64_t most = 4 * kPageBytes) {
    static const std::array<char, 4 * kPageBytes> source{};
    return bring_in({reinterpret_cast<std::uintptr_t>(source.data()), address, bytes}, most);
  }
  static Status read(std::uint64_t address, std::uint64_t bytes) {
    static std::array<char, 4 * kPageBytes> destination{};
    return bring_in({address, reinterpret_cast<std::uintptr_t>(destination.data()), bytes});
  }
  static void expect_invalid(const Status& status) {
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::invalid);
  }

  void* const base_ =
      mmap(nullptr, 4 * kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
};

TEST_F(PagesTest, EveryPageOfTheBytesIsBroughtInAndNoOther) {
  ASSERT_TRUE(written(at(kPageBytes + 4000), 200));
  EXPECT_FALSE(present(0));
  EXPECT_TRUE(present(1));
  EXPECT_TRUE(present(2));
  EXPECT_FALSE(present(3));
}

TEST_F(PagesTest, NoMoreThanIsAskedFor) {
  static_cast<char*>(base_)[100] = 7;
  ASSERT_TRUE(written(at(0), 4 * kPageBytes, kPageBytes));
  EXPECT_EQ(static_cast<char*>(base_)[100], 7);
  EXPECT_FALSE(present(1));
}

TEST_F(PagesTest, MemoryWithoutTheRight_IsInvalid) {
  protect(1, PROT_NONE);
  expect_invalid(written(at(kPageBytes), 10));
  expect_invalid(read(at(0), 2 * kPageBytes));
  EXPECT_TRUE(read(at(0), kPageBytes));
  protect(2, PROT_READ);
  EXPECT_TRUE(read(at(2 * kPageBytes), kPageBytes));
  expect_invalid(written(at(2 * kPageBytes), kPageBytes));
  expect_invalid(read(0, 1));
  expect_invalid(written(std::numeric_limits<std::uint64_t>::max() - 5, 3));
}

TEST_F(PagesTest, BehindTheEndOfAFileThereIsNothing) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::tmpfile(), std::fclose);
  ASSERT_EQ(ftruncate(fileno(file.get()), kPageBytes), 0);
  void* const mapped =
      mmap(nullptr, 2 * kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file.get()), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  const auto address = reinterpret_cast<std::uintptr_t>(mapped);
  EXPECT_TRUE(written(address, kPageBytes));
  expect_invalid(written(address + kPageBytes, 1));
  expect_invalid(read(address, kPageBytes + 1));
  munmap(mapped, 2 * kPageBytes);
}

TEST_F(PagesTest, ACopyWithoutBytes_NeedsNoPages) { EXPECT_TRUE(bring_in(Copy{})); }

}  // namespace
}  // namespace headrace::dsa
