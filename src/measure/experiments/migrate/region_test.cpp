// SPDX-License-Identifier: Apache-2.0
#include "measure/experiments/migrate/region.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <algorithm>

#include "headrace/buffer.h"
#include "measure/instruments/buffer_pool.h"
#include "measure/instruments/worker_pool.h"
#include "tests/support/container.h"

namespace headrace::experiment_migrate {
namespace {

TEST(Part, AllPartsAreAllPagesAndEven) {
  for (const std::uint64_t pages : {1U, 7U, 64U, 1001U}) {
    for (const std::size_t parts : {1U, 3U, 12U}) {
      std::uint64_t next = 0;
      for (std::size_t i = 0; i < parts; ++i) {
        const Part part = part_of(pages, i, parts);
        EXPECT_EQ(part.first, next);
        EXPECT_LE(part.count, (pages + parts - 1) / parts);
        EXPECT_GE(part.count, pages / parts);
        next += part.count;
      }
      EXPECT_EQ(next, pages);
    }
  }
}

TEST(RegionTest, IsThereOnceItIsFilled) {
  const CpuSet cpus = instruments::usable_cpus();
  const auto region = Region::make({}, base_page() * 37, base_page()).value();
  EXPECT_EQ(region->pages(), 37u);
  EXPECT_EQ(where(region->bytes())->absent, 37u);
  ASSERT_TRUE(region->fill(cpus, {}).has_value());
  EXPECT_EQ(where(region->bytes())->absent, 0u);
  EXPECT_TRUE(std::ranges::all_of(region->bytes(), [](std::byte b) { return b == std::byte{1}; }));
  EXPECT_EQ(*pages_not_on(NodeId{1000}, region->bytes()), 37u);
}

// A region of huge pages has them, or is an error; it never has base pages.
TEST(RegionTest, IsHugeOrAnError) {
  if (huge_page() > 32_MiB) GTEST_SKIP() << "a huge page has " << huge_page().value << " bytes";
  const auto region = Region::make({}, huge_page() * 2, huge_page()).value();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(region->bytes().data()) % huge_page().value, 0u);
  const Status filled = region->fill(instruments::usable_cpus(), {});
  const double part = instruments::BufferPool::huge_part(region->bytes());
  EXPECT_EQ(filled.has_value(), instruments::is_all_huge(part));
  EXPECT_TRUE(filled || filled.error().code == ErrorCode::exhausted);
}

constexpr unsigned kHugePageAdvice = 14;  // MADV_HUGEPAGE
constexpr unsigned kCollapse = 25;        // MADV_COLLAPSE, Linux 6.1

// Without either, base pages are an error, not a row called huge.
[[noreturn]] void fill_without_huge_pages() {
  test::forget_value(SYS_madvise, kCollapse);
  test::forget_value(SYS_madvise, kHugePageAdvice);
  ::prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);  // where they are given by default
  const auto region = Region::make({}, huge_page() * 2, huge_page()).value();
  const Status filled = region->fill(instruments::usable_cpus(), {});
  std::_Exit(!filled && filled.error().code == ErrorCode::exhausted ? 0 : 1);
}

TEST(RegionTest, BeforeLinux61NothingMakesSmallPagesHuge) {
  if (huge_page() > 32_MiB) GTEST_SKIP() << "a huge page has " << huge_page().value << " bytes";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(fill_without_huge_pages(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace headrace::experiment_migrate
