// SPDX-License-Identifier: Apache-2.0
#include "headrace/copy.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "headrace/random.h"

namespace headrace {
namespace {

constexpr std::byte kGuard{0xA5};
constexpr std::size_t kGuards = 128;

std::vector<std::byte> noise(std::size_t bytes, std::uint64_t seed) {
  Random random(seed);
  std::vector<std::byte> result(bytes);
  // Eight bytes at a time: with single bytes the thread sanitizer takes seconds for some megabytes.
  for (std::size_t i = 0; i < bytes; i += 8) {
    const std::uint64_t word = random();
    std::memcpy(result.data() + i, &word, std::min<std::size_t>(8, bytes - i));
  }
  return result;
}

// Memory whose first byte is `offset` bytes after a line boundary. Its last byte is the last of the
// allocation, so that the address sanitizer finds an access one byte too far.
class Exact {
 public:
  Exact(std::size_t offset, std::size_t bytes)
      : memory_(std::aligned_alloc(64, (offset + bytes + 63) / 64 * 64), std::free),
        offset_((offset + bytes) % 64 == 0 ? offset : offset + 64 - (offset + bytes) % 64) {}
  std::byte* get() const { return static_cast<std::byte*>(memory_.get()) + offset_; }

 private:
  std::unique_ptr<void, void (*)(void*)> memory_;
  std::size_t offset_;
};

// Copies `bytes` of noise between the given offsets of a line. Checks every byte, and the guards
// before and after the destination.
template <class Copy>
testing::AssertionResult copies(const Copy& copy, const std::vector<std::byte>& source,
                                std::size_t to_offset, std::size_t from_offset, std::size_t bytes) {
  const Exact from(from_offset % 64, bytes);
  std::memcpy(from.get(), source.data(), bytes);
  std::vector<std::byte> room(bytes + 2 * kGuards + 64, kGuard);
  std::byte* to = room.data() + kGuards + to_offset % 64;
  copy(to, from.get(), bytes);
  if (bytes > 0 && std::memcmp(to, source.data(), bytes) != 0) {
    return testing::AssertionFailure()
           << bytes << " bytes copied wrongly, offsets " << to_offset << " and " << from_offset;
  }
  const auto touched = [](std::byte b) { return b != kGuard; };
  if (std::any_of(room.data(), to, touched) ||
      std::any_of(to + bytes, room.data() + room.size(), touched)) {
    return testing::AssertionFailure() << "wrote outside the " << bytes << " bytes";
  }
  return testing::AssertionSuccess();
}

class EveryKernel : public testing::TestWithParam<CopyKernel> {};

TEST_P(EveryKernel, CopiesEverySizeToOneKibibyte) {
  const auto source = noise(1024, 1);
  for (std::size_t bytes = 0; bytes <= 1024; ++bytes) {
    const std::size_t to = bytes * 7 % 64;
    ASSERT_TRUE(copies(GetParam().copy, source, to, bytes * 13 % 64, bytes));
    ASSERT_TRUE(copies(GetParam().copy, source, 0, 0, bytes));
  }
}

TEST_P(EveryKernel, CopiesAtEveryPairOfOffsetsInALine) {
  const auto source = noise(1500, 2);
  for (std::size_t to = 0; to < 64; ++to) {
    for (std::size_t from = 0; from < 64; from += 3) {
      ASSERT_TRUE(copies(GetParam().copy, source, to, from, 1300 + to));
    }
  }
}

// Sizes around which a kernel changes its walk: whole runs of 2 to 4 streams, and streams 64 KiB
// apart.
TEST_P(EveryKernel, CopiesAroundTheStepsOfItsWalk) {
  const auto source = noise(600 << 10, 3);
  for (const std::size_t streams : {1UL, 2UL, 3UL, 4UL}) {
    for (const std::size_t part : {256UL, 1024UL, 2048UL, 64UL << 10, 130UL << 10}) {
      for (const std::ptrdiff_t offset : {-65, -64, -1, 0, 1, 63, 64, 65, 257}) {
        const std::size_t more = static_cast<std::size_t>(offset);  // wraps, and back in the sum
        ASSERT_TRUE(copies(GetParam().copy, source, more, 5, streams * part + more));
      }
    }
  }
}

TEST_P(EveryKernel, CopiesRandomRangesLikeMemcpy) {
  const auto source = noise(2 << 20, 4);
  Random random(5);
  for (int i = 0; i < 20; ++i) {
    const std::size_t bytes = random.below(source.size() + 1);
    ASSERT_TRUE(copies(GetParam().copy, source, random.below(64), random.below(64), bytes));
  }
}

INSTANTIATE_TEST_SUITE_P(CopyKernels, EveryKernel, testing::ValuesIn(copy_kernels()),
                         [](const auto& test) { return std::string(test.param.name); });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(EveryKernel);

RC_GTEST_PROP(CopyBytes, CopiesLikeMemcpyWhateverTheHint, ()) {
  const auto bytes = *rc::gen::weightedOneOf<std::size_t>(
      {{3, rc::gen::inRange<std::size_t>(0, 2000)},
       {1, rc::gen::inRange<std::size_t>(kStreamThreshold - 2, kStreamThreshold + 100000)}});
  const auto hint = *rc::gen::element(CopyHint::automatic, CopyHint::keep, CopyHint::stream);
  const auto to = *rc::gen::inRange<std::size_t>(0, 64);
  const auto from = *rc::gen::inRange<std::size_t>(0, 64);
  static const auto source = noise(kStreamThreshold + 100000, 6);
  const auto copy = [hint](void* t, const void* f, std::size_t n) { copy_bytes(t, f, n, hint); };
  RC_ASSERT(copies(copy, source, to, from, bytes));
}

TEST(CopyBytes, CopiesToMemoryNeverTouched) {
  constexpr std::size_t kBytes = 3 << 20;
  const auto source = noise(kBytes, 7);
  const std::unique_ptr<void, void (*)(void*)> fresh(std::malloc(kBytes), std::free);
  copy_bytes(fresh.get(), source.data(), kBytes);
  EXPECT_EQ(std::memcmp(fresh.get(), source.data(), kBytes), 0);
}

// The first copies of a process race for the calibration; all of them must be right.
TEST(CopyBytes, MayBeCalledFirstByManyThreads) {
  const auto source = noise(1 << 20, 8);
  std::vector<std::vector<std::byte>> copies(4, std::vector<std::byte>(source.size()));
  std::vector<CopyKernel> chosen(copies.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < copies.size(); ++i) {
    threads.emplace_back([&, i] {
      copy_bytes(copies[i].data(), source.data(), source.size(), CopyHint::stream);
      chosen[i] = chosen_copy_kernel();
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& copy : copies) EXPECT_EQ(copy, source);
  for (const auto& kernel : chosen) EXPECT_EQ(kernel.copy, chosen[0].copy);
}

}  // namespace
}  // namespace headrace
