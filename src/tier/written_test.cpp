// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <string>

#include "tier/planted_testing.h"

namespace headrace {
namespace {

using test::kPage;
using test::Trackable;

class Written : public testing::Test {
 protected:
  void SetUp() override {
    auto source = open_hotness(HotnessKind::written, {.least_interval = {}});
    if (!source) GTEST_SKIP() << source.error().message;
    source_ = *std::move(source);
  }
  std::unique_ptr<HotnessSource> source_;
};

TEST_F(Written, SeesEachPageThatIsWrittenAndNoOther) {
  const Trackable memory(HotnessKind::written, 16_MiB);
  ASSERT_TRUE(source_->track(memory.bytes()));
  std::mt19937_64 random(5);
  for (int look = 0; look < 10; ++look) {
    const auto written = test::plant(memory.count(), 0.1, 1, random);
    const auto read = test::plant(memory.count(), 0.1, 1, random);
    test::access_pages(memory.bytes(), written, test::Access::write);
    test::access_pages(memory.bytes(), read, test::Access::read);
    EXPECT_EQ(test::pages_in(*source_->look(), memory.bytes()), written);
  }
}

TEST_F(Written, SeesNoReadsOfMemoryThatWasNeverTouched) {
  auto memory = MappedMemory::make(1_MiB, {1}, {1}, PROT_READ | PROT_WRITE).value();
  const std::span<std::byte> bytes(memory.memory(), 1_MiB .value);
  ASSERT_TRUE(source_->track(bytes));
  for (std::size_t page = 0; page < 256; ++page) test::access_page(bytes, page, test::Access::read);
  EXPECT_TRUE(source_->look()->touches.empty());
  test::access_page(bytes, 77, test::Access::write);
  EXPECT_EQ(test::pages_in(*source_->look(), bytes), std::vector<std::size_t>{77});
}

TEST_F(Written, SeesWhatTheKernelWritesForTheProgram) {
  const Trackable memory(HotnessKind::written, 1_MiB);
  ASSERT_TRUE(source_->track(memory.bytes()));
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const std::string text = "from the kernel";
  ASSERT_EQ(write(ends[1], text.data(), text.size()), std::ssize(text));
  ASSERT_EQ(read(ends[0], memory.bytes().data() + 9 * kPage, text.size()), std::ssize(text));
  close(ends[0]);
  close(ends[1]);
  EXPECT_EQ(std::memcmp(memory.bytes().data() + 9 * kPage, text.data(), text.size()), 0);
  EXPECT_EQ(test::pages_in(*source_->look(), memory.bytes()), std::vector<std::size_t>{9});
}

TEST_F(Written, TracksSharedMemoryToo) {
  const Trackable memory(HotnessKind::memfd, 1_MiB);
  ASSERT_TRUE(source_->track(memory.bytes()));
  test::access_page(memory.bytes(), 3, test::Access::read);
  test::access_page(memory.bytes(), 5, test::Access::write);
  EXPECT_EQ(test::pages_in(*source_->look(), memory.bytes()), std::vector<std::size_t>{5});
}

TEST_F(Written, TellsMemoryThatCameInThePlaceOfOursAsUnseenAndGoesOn) {
  const Trackable memory(HotnessKind::written, 1_MiB);
  ASSERT_TRUE(source_->track(memory.bytes()));
  ASSERT_NE(mmap(memory.pages(64, 16).data(), 16 * kPage, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
            MAP_FAILED);
  for (const std::size_t page : {3u, 70u, 200u}) {
    test::access_page(memory.bytes(), page, test::Access::write);
  }
  const auto sample = source_->look();
  ASSERT_TRUE(sample) << sample.error().message;
  EXPECT_EQ(sample->unseen.value, 16 * kPage);
  EXPECT_NE(sample->why_unseen.find("no longer the memory"), std::string::npos);
  EXPECT_EQ(test::pages_in(*sample, memory.bytes()), (std::vector<std::size_t>{3, 200}));
}

TEST_F(Written, TellsMemoryThatWasMovedAwayAndBackAsUnseen) {
  const Trackable memory(HotnessKind::written, 1_MiB);
  const Trackable other(HotnessKind::written, 1_MiB);
  ASSERT_TRUE(source_->track(memory.bytes()));
  ASSERT_TRUE(test::move_mapping(memory.bytes(), other.bytes()));
  ASSERT_TRUE(test::move_mapping(other.bytes(), memory.bytes()));
  test::access_page(memory.bytes(), 3, test::Access::write);
  EXPECT_EQ(source_->look()->unseen, 1_MiB);
}

TEST_F(Written, SplitsHugePagesAndKeepsTheirBytes) {
  auto memory = MappedMemory::make(4_MiB, 2_MiB, 4_KiB, PROT_READ | PROT_WRITE).value();
  const std::span<std::byte> bytes(memory.memory(), 4_MiB .value);
  ASSERT_EQ(madvise(bytes.data(), bytes.size(), MADV_HUGEPAGE), 0);
  std::memset(bytes.data(), 'h', bytes.size());
  ASSERT_TRUE(source_->track(bytes));
  for (int look = 0; look < 3; ++look) {
    test::access_page(bytes, 700, test::Access::write);
    const auto sample = source_->look();
    const auto pages = test::pages_in(*sample, bytes);
    EXPECT_TRUE(std::ranges::binary_search(pages, 700u));
    EXPECT_EQ(pages.size(), 1u) << "the huge page was split when it was protected, or is whole";
  }
  const auto others = std::ranges::count(bytes, std::byte{'h'});
  EXPECT_EQ(others, std::ssize(bytes) - 1);
}

}  // namespace
}  // namespace headrace
