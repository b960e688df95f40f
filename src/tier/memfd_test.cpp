// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "support/child.h"
#include "tests/support/bytes.h"
#include "tests/support/expect.h"
#include "tier/planted_testing.h"

namespace headrace {
namespace {

using test::expect_refused;

using test::kPage;
using test::Trackable;

TEST(SharedMemory, IsZeroedInWholePagesAndMoves) {
  auto memory = SharedMemory::make({kPage + 1});
  ASSERT_TRUE(memory);
  EXPECT_EQ(memory->bytes().size(), 2 * kPage);
  EXPECT_TRUE(test::same(memory->bytes(), std::vector<std::byte>(2 * kPage)));
  const std::byte* const at = memory->bytes().data();
  SharedMemory moved = *std::move(memory);
  EXPECT_EQ(moved.bytes().data(), at);
  EXPECT_TRUE(memory->bytes().empty());
}

TEST(SharedMemory, ImpossibleSizes_AreRefused) {
  EXPECT_EQ(SharedMemory::make({0}).error().code, ErrorCode::invalid);
  EXPECT_EQ(SharedMemory::make({~0ull}).error().code, ErrorCode::exhausted);
  EXPECT_FALSE(SharedMemory::make({1ull << 62}));
}

class Memfd : public testing::Test {
 protected:
  void SetUp() override {
    auto source = open_hotness(HotnessKind::memfd, {.least_interval = {}});
    if (!source) GTEST_SKIP() << source.error().message;
    source_ = *std::move(source);
  }
  std::unique_ptr<HotnessSource> source_;
};

TEST_F(Memfd, SeesEachPageThatIsTouchedAndNoOther) {
  const Trackable memory(HotnessKind::memfd, 16_MiB);
  ASSERT_TRUE(source_->track(memory.bytes()));
  std::mt19937_64 random(4);
  for (int look = 0; look < 10; ++look) {
    const auto touched = test::plant(memory.count(), 0.1, 1, random);
    test::access_pages(memory.bytes(), touched,
                       look % 2 == 0 ? test::Access::read : test::Access::write);
    EXPECT_EQ(test::pages_in(*source_->look(), memory.bytes()), touched);
  }
}

TEST_F(Memfd, RefusesMemoryThatWouldLoseItsBytes) {
  const Trackable own(HotnessKind::written, 1_MiB);
  expect_refused(source_->track(own.bytes()), ErrorCode::unsupported, "SharedMemory");
  EXPECT_EQ(own.bytes()[0], std::byte{1});
}

TEST_F(Memfd, RefusesOtherSharedMemoryWhichAnybodyMayUnmap) {
  void* const other =
      mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(other, MAP_FAILED);
  const auto refused = source_->track({static_cast<std::byte*>(other), kPage});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
  munmap(other, kPage);
}

// Maps private memory full of 'x' in place of `bytes`.
void replace_by_private(std::span<std::byte> bytes) {
  ASSERT_EQ(mmap(bytes.data(), bytes.size(), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
            bytes.data());
  std::memset(bytes.data(), 'x', bytes.size());
}

TEST_F(Memfd, ForeignMemoryAtItsAddresses_IsRefused) {
  const Trackable replaced(HotnessKind::memfd, 1_MiB);
  replace_by_private(replaced.bytes());
  const Trackable partly(HotnessKind::memfd, 1_MiB);
  replace_by_private(partly.pages(7, 1));
  const Trackable moved(HotnessKind::memfd, 1_MiB);
  const Trackable target(HotnessKind::written, 1_MiB);
  ASSERT_TRUE(test::move_mapping(moved.bytes(), target.bytes()));
  replace_by_private(moved.bytes());
  for (const Trackable* each : {&replaced, &partly, &moved}) {
    const auto refused = source_->track(each->bytes());
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::unsupported) << refused.error().message;
    EXPECT_EQ(static_cast<char>(each->bytes()[7 * kPage + 1]), 'x');
  }
  const Trackable other(HotnessKind::memfd, 1_MiB);
  ASSERT_TRUE(test::move_mapping(other.bytes(), partly.bytes()));
  EXPECT_FALSE(source_->track(partly.bytes())) << "the memory of another SharedMemory";
}

// Calls `meanwhile` between listing the pages and dropping their entries.
struct Interrupted final : Kernel {
  std::function<void()> meanwhile;
  int ioctl(int descriptor, unsigned long request, void* argument) override {
    const int result = Kernel::ioctl(descriptor, request, argument);
    if (_IOC_NR(request) == 16 && meanwhile) std::exchange(meanwhile, nullptr)();  // PAGEMAP_SCAN
    return result;
  }
};

TEST_F(Memfd, MemoryThatReplacedUnmappedMemory_KeepsItsBytes) {
  Interrupted kernel;
  const auto source = open_hotness(HotnessKind::memfd, {.least_interval = {}}, kernel).value();
  auto memory = std::make_unique<SharedMemory>(SharedMemory::make(1_MiB).value());
  const auto bytes = memory->bytes();
  ASSERT_TRUE(source->track(bytes));
  void* other = MAP_FAILED;
  kernel.meanwhile = [&] {
    memory.reset();
    other = mmap(bytes.data(), bytes.size(), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (other != MAP_FAILED) std::memset(other, 'x', bytes.size());
  };
  const auto sample = source->look();
  if (other == MAP_FAILED) GTEST_SKIP() << "something else came there first";
  EXPECT_EQ(sample->unseen, 1_MiB);
  EXPECT_TRUE(sample->touches.empty());
  const auto* const text = static_cast<const char*>(other);
  EXPECT_EQ(std::count(text, text + bytes.size(), 'x'), std::ssize(bytes));
  munmap(other, bytes.size());
}

TEST_F(Memfd, ForeignMemoryInItsPlace_IsLeftAlone) {
  const Trackable memory(HotnessKind::memfd, 1_MiB);
  ASSERT_TRUE(source_->track(memory.bytes()));
  void* const in_place = mmap(memory.bytes().data() + 4 * kPage, 4 * kPage, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  ASSERT_NE(in_place, MAP_FAILED);
  std::memset(in_place, 'x', 4 * kPage);
  const auto sample = source_->look();
  ASSERT_TRUE(sample);
  EXPECT_EQ(sample->unseen, 1_MiB);
  EXPECT_NE(sample->why_unseen.find("no longer the memory"), std::string::npos);
  for (std::size_t i = 0; i < 4 * kPage; ++i) {
    ASSERT_EQ(static_cast<const char*>(in_place)[i], 'x');
  }
}

TEST_F(Memfd, SaysOfLockedMemoryThatItSeesNothing) {
  const Trackable memory(HotnessKind::memfd, {16 * kPage});
  ASSERT_TRUE(source_->track(memory.bytes()));
  // ASan's mlock() does nothing.
  if (syscall(SYS_mlock, memory.bytes().data(), kPage) != 0) GTEST_SKIP() << "mlock is refused";
  const auto sample = source_->look();
  ASSERT_TRUE(sample);
  EXPECT_EQ(sample->unseen.value, 16 * kPage);
  EXPECT_NE(sample->why_unseen.find("mlock"), std::string::npos);
  EXPECT_TRUE(sample->touches.empty());
  ASSERT_TRUE(source_->untrack(memory.bytes()));
  EXPECT_EQ(source_->track(memory.bytes()).error().code, ErrorCode::unsupported);
}

TEST_F(Memfd, SeesNoTouchesOfAChildWhoseWritesArrive) {
  const Trackable memory(HotnessKind::memfd, 1_MiB);
  ASSERT_TRUE(source_->track(memory.bytes()));
  ASSERT_EQ(test::status_of_child([&] {
              memory.bytes()[3 * kPage] = std::byte{9};
              return true;
            }),
            0);
  EXPECT_TRUE(source_->look()->touches.empty());
  EXPECT_EQ(memory.bytes()[3 * kPage], std::byte{9});
}

}  // namespace
}  // namespace headrace
