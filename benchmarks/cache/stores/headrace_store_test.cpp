// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/cache/stores/headrace_store.h"

#include <gtest/gtest.h>

namespace headrace::cache_bench {
namespace {

TEST(HeadraceStore, APlanFetchesAhead) {
  const Source source = Source::in_memory(256, 4096);
  const auto store = HeadraceStore::make(source, 1_MiB);
  ASSERT_TRUE(store) << store.error().message;
  const Prefetch plan = (*store)->plan(source, 0, source.blocks());
  for (std::uint64_t block = 0; block < source.blocks(); ++block) {
    const HeadraceStore::Pin pin = (*store)->access(block, plan);
    ASSERT_NE(pin.bytes(), nullptr);
    EXPECT_TRUE(source.holds(block, 4088, pin.bytes()));
  }
  EXPECT_EQ((*store)->misses(), 0U);
  EXPECT_EQ(plan.progress().used, 256U);
}

}  // namespace
}  // namespace headrace::cache_bench
