// SPDX-License-Identifier: Apache-2.0
// Blocks that move between two memories while others read, invalidate and drop them.
#include <gtest/gtest.h>

#include "headrace/cache.h"
#include "tests/explore/versions.h"
#include "tests/support/chain_rig.h"

namespace headrace::explore {
namespace {

using namespace test;

// Two rows fit into each memory. Copies end in a thread of the backend; a few fail.
CacheRig::Options two_and_two(Trial& trial) {
  CacheRig::Options options = chain_of(2 * Versions::kRow, {2 * Versions::kRow});
  options.fake.own_thread = true;
  options.fake.log = false;
  options.fake.seed = 1 + trial.below(1000);
  options.fake.inside_chance = trial.below(3) == 0 ? 0.3 : 0;
  options.fake.fail_chance = trial.below(3) == 0 ? 0.2 : 0;
  options.poller = true;
  return options;
}

void read(Trial& trial, CacheRig& rig, Versions& rows, std::size_t row) {
  Block held;
  rows.read(row, [&] {
    held = rig.cache->access(rows.row(row));
    const auto bytes = held.wait();
    trial.require(bytes.has_value(), "a block that was waited for has bytes");
    return *bytes;
  });
}

void finish(Trial& trial, CacheRig& rig) {
  rig.settle();
  trial.require(rig.cache->stats().bytes_pinned == 0_B, "no pin is left");
  trial.require(rig.cache->stats().bytes_used <= Bytes{4 * Versions::kRow},
                "no budget is exceeded");
}

TEST(ExploreChain, ReadersBesideInvalidate_SeeNoOldBytes) {
  explore([](Trial& trial) {
    Versions rows(trial, 3);
    CacheRig rig(two_and_two(trial));
    for (std::size_t row = 0; row < 3; ++row) read(trial, rig, rows, row);
    const auto reads = [&](std::size_t first) {
      for (std::size_t i = 0; i < 3; ++i) read(trial, rig, rows, (first + i) % 3);
    };
    const auto write = [&] {
      for (std::size_t row = 0; row < 2; ++row) {
        rows.write(row, [&] { rig.cache->invalidate(rows.row(row)); });
      }
    };
    trial.together({[&] { reads(0); }, [&] { reads(1); }, write});
    finish(trial, rig);
  });
}

TEST(ExploreChain, ReadersBesideClearAndFlush_SeeNoOldBytes) {
  explore([](Trial& trial) {
    Versions rows(trial, 3);
    CacheRig rig(two_and_two(trial));
    for (std::size_t row = 0; row < 3; ++row) read(trial, rig, rows, row);
    const bool clear = trial.below(2) == 0;
    const auto reads = [&] {
      for (std::size_t i = 0; i < 4; ++i) read(trial, rig, rows, 2 * (i % 2));
    };
    // Nobody reads the row that is written meanwhile, so that clear() and flush() drop it.
    const auto write = [&] {
      rows.write(1, [&] { clear ? rig.cache->clear() : rig.cache->flush(); });
      read(trial, rig, rows, 1);
    };
    const auto shrink = [&] { (void)rig.cache->resize(kHbm, Bytes{Versions::kRow}); };
    trial.together({reads, write, shrink});
    finish(trial, rig);
  });
}

// A callback finds a move that needs a slab, which only a user's thread allocates.
TEST(ExploreChain, DestructionDuringAMove_LeavesNoPin) {
  explore([](Trial& trial) {
    Versions rows(trial, 4);
    rows.number();
    CacheRig rig(two_and_two(trial));
    for (std::size_t row = 0; row < 2 + trial.below(3); ++row) {
      const Block held = rig.cache->access(rows.row(row));
      if (trial.below(2) == 0) (void)held.wait();
    }
    rig.cache.reset();
  });
}

TEST(ExploreChain, HeldBlocks_KeepTheirBytes) {
  explore([](Trial& trial) {
    Versions rows(trial, 4);
    rows.number();
    CacheRig rig(two_and_two(trial));
    for (std::size_t row = 0; row < 3; ++row) read(trial, rig, rows, row);
    const auto hold = [&](std::size_t first) {
      for (std::size_t i = 0; i < 3; ++i) {
        const std::size_t row = (first + i) % 4;
        const Block held = rig.cache->access(rows.row(row));
        const auto bytes = held.wait();
        trial.require(bytes && rows.version_of(*bytes) == row, "a block has its bytes");
        read(trial, rig, rows, (row + 1) % 4);
        trial.require(rows.version_of(*bytes) == row, "a pin keeps its bytes");
      }
    };
    trial.together({[&] { hold(0); }, [&] { hold(2); }});
    finish(trial, rig);
  });
}

}  // namespace
}  // namespace headrace::explore
