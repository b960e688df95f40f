// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/explore/explore.h"
#include "tests/support/cache_rig.h"

namespace headrace::explore {
namespace {

using namespace test;

TEST(ExploreCache, TwoAccesses_OfOneExtent_CopyItOnce) {
  explore([](Trial& trial) {
    Source source(4096);
    FakeOptions fake;
    fake.own_thread = true;
    CacheRig rig({.fake = fake, .cache = {.slab = 4096_B, .shards = 1}, .budget = 4096_B,
                  .poller = true, .observe = false});
    const auto read = [&] {
      const Block block = rig.cache->access(source.at(0, 512));
      const auto bytes = block.wait();
      trial.require(bytes.has_value(), "the block is there");
      trial.require(source.equals(source.at(0, 512), *bytes), "it has the bytes of its source");
    };
    trial.together({read, read});
    trial.require(rig.fake->accepted().size() == 1, "one copy serves both");
  });
}

}  // namespace
}  // namespace headrace::explore
