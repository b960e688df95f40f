// SPDX-License-Identifier: Apache-2.0
#include "headrace/cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "tests/explore/versions.h"

namespace headrace::explore {
namespace {

using namespace test;

constexpr std::uint64_t kRow = Versions::kRow;

// Copies end in a thread of the backend, so that every wait must be ended by a wake-up.
CacheRig::Options in_flight(Trial& trial, std::uint64_t rows, std::size_t shards = 1) {
  CacheRig::Options options;
  options.fake.own_thread = true;
  options.fake.log = false;
  options.fake.seed = 1 + trial.below(1000);
  options.fake.inside_chance = trial.below(3) == 0 ? 0.3 : 0;
  options.cache.slab = 4096_B;
  options.cache.shards = shards;
  options.budget = Bytes{rows * kRow * shards};
  options.poller = true;
  options.observe = false;
  return options;
}

std::span<const std::byte> bytes_of(Trial& trial, const Block& block) {
  const auto bytes = block.wait();
  trial.require(bytes.has_value(), "a block that was waited for has bytes");
  const bool copy = bytes->data() != block.extent().memory();
  trial.require(copy || !block.hit(), "a hit has a copy");
  const BlockState state = block.state();
  trial.require(!copy || state == BlockState::ready || state == BlockState::evicting,
                "a copy that has bytes is whole");
  trial.require(!copy || block.node() == kDram, "a copy is on the cache's node");
  return *bytes;
}

TEST(ExploreCache, AccessesOfOneExtent_CopyItOnce) {
  explore([](Trial& trial) {
    Versions rows(trial, 1);
    auto options = in_flight(trial, 4);
    options.fake.log = true;
    CacheRig rig(options);
    const auto read = [&] {
      const Block block = rig.cache->access(rows.row(0));
      rows.read(0, [&] { return bytes_of(trial, block); });
    };
    trial.together({read, read, read});
    trial.require(rig.fake->accepted().size() == 1, "one copy serves all");
    const CacheStats stats = rig.cache->stats();
    trial.require(stats.misses == 1 && stats.hits + stats.inflight_hits == 2,
                  "each access is counted once");
    trial.require(stats.bytes_pinned == 0_B, "no pin is left");
  });
}

TEST(ExploreCache, ReadersBesideInvalidate_SeeNoOldBytes) {
  explore([](Trial& trial) {
    Versions rows(trial, 1);
    CacheRig rig(in_flight(trial, 4));
    if (trial.below(2) == 0) rig.load(rows.row(0));
    const auto read = [&] {
      std::optional<Block> held;
      unsigned version = 0;
      for (int i = 0; i < 3; ++i) {
        Block block;
        rows.read(0, [&] {
          block = rig.cache->access(rows.row(0));
          return bytes_of(trial, block);
        });
        if (held) continue;
        held = std::move(block);
        version = rows.version_of(*held->now());
      }
      trial.require(rows.version_of(*held->now()) == version, "a pin keeps its bytes");
    };
    const auto write = [&] {
      for (int i = 0; i < 2; ++i) {
        rows.write(0, [&] { rig.cache->invalidate(rows.row(0)); });
      }
    };
    trial.together({read, read, write});
    trial.require(rig.cache->stats().bytes_pinned == 0_B, "no pin is left");
  });
}

// Two frames and three rows: each access evicts a block that another thread may be pinning.
TEST(ExploreCache, PinsBesideEviction_KeepTheirBytes) {
  explore([](Trial& trial) {
    Versions rows(trial, 4);
    rows.number();
    CacheRig rig(in_flight(trial, 3));
    for (std::size_t i = 0; i < 3; ++i) rig.load(rows.row(i));
    const auto read = [&](std::size_t first) {
      for (std::size_t i = 0; i < 4; ++i) {
        const std::size_t index = (first + i) % 4;
        const Block block = rig.cache->access(rows.row(index));
        const auto bytes = bytes_of(trial, block);
        trial.require(rows.version_of(bytes) == index, "a block has the bytes of its extent");
        const Block again = rig.cache->access(rows.row(index));
        trial.require(rows.version_of(bytes) == index, "a pin keeps its bytes");
      }
    };
    trial.together({[&] { read(0); }, [&] { read(3); }});
    trial.require(rig.cache->stats().bytes_pinned == 0_B, "no pin is left");
  });
}

// Enough frames that victims are chosen long before they are dropped (32), and their pins counted
// beside the lock (128).
void hit_victims(Trial& trial, std::size_t frames) {
  constexpr std::uint64_t kSmall = 64;
  Versions rows(trial, frames + 6, kSmall);
  rows.number();
  auto options = in_flight(trial, 1);
  options.budget = Bytes{frames * kSmall};
  options.fake.own_thread = false;
  options.fake.inside_chance = 1;
  CacheRig rig(options);
  const std::size_t before = frames + 1 + trial.below(2);
  for (std::size_t i = 0; i < before; ++i) (void)rig.cache->access(rows.row(i));
  const auto read = [&](std::size_t first, std::size_t count) {
    for (std::size_t i = first; i < first + count; ++i) {
      const Block block = rig.cache->access(rows.row(i));
      const auto bytes = bytes_of(trial, block);
      trial.require(rows.version_of(bytes) == i, "a block has the bytes of its extent");
      const Block next = rig.cache->access(rows.half(i + 1));
      trial.require(rows.version_of(bytes_of(trial, next)) == i + 1, "a block has its bytes");
      trial.require(rows.version_of(bytes) == i, "a pin keeps its bytes");
    }
  };
  const std::size_t old = trial.below(4);
  trial.together({[&] { read(old, 3); }, [&] { read(before, 2); }, [&] { read(old + 1, 2); }});
  trial.require(rig.cache->stats().bytes_pinned == 0_B, "no pin is left");
}

TEST(ExploreCache, HitsOnVictims_KeepTheirBytes) {
  explore([](Trial& trial) { hit_victims(trial, 32); });
}

TEST(ExploreCache, HitsOnVictimsChosenAhead_KeepTheirBytes) {
  explore([](Trial& trial) { hit_victims(trial, 128); }, 0.2);
}

TEST(ExploreCache, Hits_BesideFlushAndClear_KeepTheirBytes) {
  explore([](Trial& trial) {
    Versions rows(trial, 2);
    rows.number();
    CacheRig rig(in_flight(trial, 4));
    rig.load(rows.row(0));
    rig.load(rows.row(1));
    const auto read = [&] {
      for (std::size_t i = 0; i < 4; ++i) {
        const Block block = rig.cache->access(rows.row(i % 2));
        const auto bytes = bytes_of(trial, block);
        trial.require(rows.version_of(bytes) == i % 2, "a block has the bytes of its extent");
        const Block clone = block.clone();
        trial.require(rows.version_of(*clone.now()) == i % 2, "a clone has its bytes");
      }
    };
    const auto drop = [&] {
      rig.cache->flush();
      rig.cache->clear();
      (void)rig.cache->resize(kDram, Bytes{2 * kRow});
      (void)rig.cache->resize(kDram, Bytes{4 * kRow});
    };
    trial.together({read, read, drop});
    trial.require(rig.cache->stats().bytes_pinned == 0_B, "no pin is left");
  });
}

// After forget() no engine reads the object: its memory may be freed.
TEST(ExploreCache, AfterForget_NoEngineReadsTheObject) {
  explore([](Trial& trial) {
    std::optional<Versions> rows(std::in_place, trial, 2);
    CacheRig rig(in_flight(trial, 4));
    const auto access = [&](std::size_t row) { (void)rig.cache->access(rows->row(row)); };
    const auto plan = [&] {
      Prefetch ahead = rig.cache->prefetch(std::vector{rows->row(0), rows->row(1)});
      if (trial.below(2) == 0) ahead.cancel();
    };
    trial.together({[&] { access(0); }, [&] { access(1); }, plan,
                    [&] {
                      access(0);
                      trial.require(rig.cache->forget(rows->object()).has_value(), "forget() ends");
                    }});
    trial.require(rig.cache->forget(rows->object()).has_value(), "forget() ends");
    trial.require(rig.cache->reading().empty(), "nothing reads a forgotten object");
    trial.require(rig.fake->in_flight() == 0, "no copy is in flight");
    rows.reset();
  });
}

// Other copies start and end meanwhile. Without a wake-up it would sleep for a slice of time.
TEST(ExploreCache, ForgetBesideOtherCopies_IsWoken) {
  explore([](Trial& trial) {
    Versions rows(trial, 1);
    Versions others(trial, 2);
    CacheRig rig(in_flight(trial, 4));
    const auto access = [&](std::size_t row) { (void)rig.cache->access(others.row(row)); };
    trial.together({[&] {
                      (void)rig.cache->access(rows.row(0));
                      trial.require(rig.cache->forget(rows.object()).has_value(), "forget() ends");
                    },
                    [&] { access(0); }, [&] { access(1); }});
  });
}

TEST(ExploreCache, PlansBesideAccesses_FetchEachRowAndEnd) {
  explore([](Trial& trial) {
    Versions rows(trial, 4);
    rows.number();
    CacheRig rig(in_flight(trial, 4));
    std::vector<Extent> extents;
    for (std::size_t i = 0; i < 4; ++i) extents.push_back(rows.row(i));
    Prefetch ahead;
    const auto read = [&](std::size_t first) {
      for (std::size_t i = 0; i < 3; ++i) {
        const std::size_t index = (first + i) % 4;
        const Block block = rig.cache->access(rows.row(index));
        trial.require(rows.version_of(bytes_of(trial, block)) == index,
                      "a block has the bytes of its extent");
      }
    };
    trial.together({[&] {
                      ahead = rig.cache->prefetch(extents, {.window = Bytes{2 * kRow}});
                      (void)ahead.progress();
                      if (trial.below(2) == 0) ahead.cancel();
                    },
                    [&] { read(0); }, [&] { read(2); }});
    ahead = {};
    trial.require(rig.cache->forget(rows.object()).has_value(), "forget() ends");
    trial.require(rig.cache->stats().bytes_pinned == 0_B, "no pin is left");
  });
}

// A Block is released by a thread other than the one that took it, which may have ended.
TEST(ExploreCache, BlocksReleasedElsewhere_LeaveNoPin) {
  explore([](Trial& trial) {
    Versions rows(trial, 3);
    CacheRig rig(in_flight(trial, 2));
    rig.load(rows.row(0));
    Mutex exchange;
    Block given;
    const auto swap = [&](std::size_t first) {
      for (std::size_t i = 0; i < 3; ++i) {
        Block block = rig.cache->access(rows.row((first + i) % 3));
        (void)bytes_of(trial, block);
        const MutexLock lock(exchange);
        std::swap(given, block);
      }
    };
    trial.together({[&] { swap(0); }, [&] { swap(1); },
                    [&] {
                      rig.cache->invalidate(rows.row(0));
                      rig.cache->flush();
                    }});
    given = Block{};
    trial.require(rig.cache->stats().bytes_pinned == 0_B, "no pin is left");
  });
}

TEST(ExploreCache, Callbacks_AreCalledOnce_AndTheCacheMayEnd) {
  explore([](Trial& trial) {
    Versions rows(trial, 3);
    CacheRig rig(in_flight(trial, 4));
    Cache& cache = *rig.cache;
    int called = 0;
    const auto ask = [&](std::size_t row) {
      const Block block = cache.access(rows.row(row));
      block.on_ready([&] {
        ++called;
        (void)cache.access(rows.row(2));
      });
    };
    trial.together({[&] { ask(0); }, [&] { ask(0); }, [&] { ask(1); }});
    rig.cache.reset();
    trial.require(called == 3, "each callback is called once");
  });
}

// One frame, and three threads that want it in turn.
TEST(ExploreCache, WaitForSpace_EndsWhenABlockIsReleased) {
  explore([](Trial& trial) {
    Versions rows(trial, 3);
    CacheRig rig(in_flight(trial, 1));
    const auto read = [&](std::size_t row) {
      const Block block =
          rig.cache->access(rows.row(row), {.space_timeout = std::chrono::hours{1}});
      rows.read(row, [&] { return bytes_of(trial, block); });
      trial.require(block.node() == kDram, "a block that was waited for has a frame");
    };
    trial.together({[&] { read(0); }, [&] { read(1); }, [&] { read(2); }});
    trial.require(rig.cache->stats().refusals == 0, "no access is refused");
  });
}

TEST(ExploreCache, FirstMisses_WaitForOneSlab) {
  explore([](Trial& trial) {
    Versions rows(trial, 3);
    CacheRig rig(in_flight(trial, 8));
    const auto read = [&](std::size_t row) {
      const Block block = rig.cache->access(rows.row(row));
      trial.require(rows.version_of(bytes_of(trial, block)) == 0, "a block has its bytes");
      trial.require(block.node() == kDram, "it has a frame");
    };
    trial.together({[&] { read(0); }, [&] { read(1); }, [&] { read(2); }});
    trial.require(rig.cache->stats().refusals == 0, "no access is refused");
  });
}

TEST(ExploreCache, FailedCopies_EndEveryWait) {
  explore([](Trial& trial) {
    Versions rows(trial, 2);
    auto options = in_flight(trial, 2);
    options.fake.fail_chance = 0.6;
    CacheRig rig(options);
    const auto read = [&] {
      for (std::size_t i = 0; i < 2; ++i) {
        Block block;
        rows.read(i, [&] {
          block = rig.cache->access(rows.row(i));
          return bytes_of(trial, block);
        });
      }
    };
    trial.together(
        {read, read, [&] { rows.write(0, [&] { rig.cache->invalidate(rows.row(0)); }); }});
    trial.require(rig.cache->stats().bytes_pinned == 0_B, "no pin is left");
  });
}

// Rows and stretches of two shards; the writer's range crosses them.
TEST(ExploreCache, InvalidateAcrossShards_SeesNoOldBytes) {
  explore([](Trial& trial) {
    Versions rows(trial, 4);
    CacheRig rig(in_flight(trial, 8, 2));
    for (std::size_t i = 0; i < 2; ++i) rig.load(rows.row(i));
    const auto read = [&](std::size_t first) {
      for (std::size_t i = 0; i < 3; ++i) {
        const std::size_t index = (first + i) % 4;
        Block block;
        rows.read(index, [&] {
          block = rig.cache->access(rows.row(index));
          return bytes_of(trial, block);
        });
      }
    };
    trial.together({[&] { read(0); }, [&] { read(1); },
                    [&] {
                      rows.write(1, [&] { rig.cache->invalidate(rows.row(1)); });
                      rows.write(0, [&] { rig.cache->invalidate(whole(rows.object())); });
                    }});
    trial.require(rig.cache->stats().bytes_pinned == 0_B, "no pin is left");
  });
}

// Many Blocks of one thread need several readers, which another thread takes over at its end.
TEST(ExploreCache, ThreadsThatEnd_LeaveTheirSlots) {
  explore(
      [](Trial& trial) {
        Versions rows(trial, 2);
        CacheRig rig(in_flight(trial, 4));
        rig.load(rows.row(0));
        rig.load(rows.row(1));
        std::vector<Block> left;
        const auto hold = [&](std::size_t count) {
          std::vector<Block> blocks;
          for (std::size_t i = 0; i < count; ++i)
            blocks.push_back(rig.cache->access(rows.row(i % 2)));
          left.push_back(std::move(blocks.back()));
        };
        trial.together({[&] { hold(18); }, [&] { hold(3); }, [&] { rig.cache->flush(); }});
        trial.together({[&] { hold(3); }, [&] { rig.cache->clear(); }});
        for (const Block& block : left) {
          if (block.now()) (void)rows.version_of(*block.now());
        }
        left.clear();
        trial.require(rig.cache->stats().bytes_pinned == 0_B, "no pin is left");
      },
      0.5);
}

// The end of a thread gives its readers back, beside the destructor that removes them.
TEST(ExploreCache, ThreadThatEndsBesideTheDestructor_TouchesNothing) {
  explore([](Trial& trial) {
    Versions rows(trial, 2);
    CacheRig rig(in_flight(trial, 4));
    std::atomic<int> left{2};
    const auto use = [&](std::size_t row) {
      const Block block = rig.cache->access(rows.row(row));
      trial.require(rows.version_of(bytes_of(trial, block)) == 0, "a block has its bytes");
    };
    trial.together({[&] {
                      use(0);
                      --left;
                    },
                    [&] {
                      use(1);
                      --left;
                    },
                    [&] {
                      while (left > 0) std::this_thread::yield();
                      rig.cache.reset();
                    }});
  });
}

// A reader finds an entry, which another thread uses for other rows before the reader has pinned
// it.
TEST(ExploreCache, EntriesThatBecomeOtherBlocks_AreNotPinned) {
  explore([](Trial& trial) {
    Versions rows(trial, 4);
    rows.number();
    auto options = in_flight(trial, 2);
    options.fake.inside_chance = 1;
    CacheRig rig(options);
    rig.load(rows.row(0));
    rig.load(rows.row(0));
    const auto read = [&](std::size_t row) {
      const Block block = rig.cache->access(rows.row(row));
      trial.require(rows.version_of(bytes_of(trial, block)) == row,
                    "a block has the bytes of its extent");
    };
    trial.together({[&] {
                      for (int i = 0; i < 6; ++i) read(0);
                    },
                    [&] {
                      for (std::size_t row = 1; row < 4; ++row) {
                        read(row);
                        read(row);
                      }
                    }});
  });
}

// One tenant has half of the budget for sure, the other at most half.
TEST(ExploreCache, TenantsBesideAShrinkingBudget_KeepTheirShares) {
  explore(
      [](Trial& trial) {
        Versions rows(trial, 6);
        auto options = in_flight(trial, 4);
        const double bound = trial.below(2) == 0 ? 0.5 : 1;
        options.cache.tenants = {{.name = "a", .least = 0.5},
                                 {.name = "b", .most = 0.5, .most_pinned = bound}};
        CacheRig rig(options);
        const TenantId a = *rig.cache->tenant("a");
        const TenantId b = *rig.cache->tenant("b");
        (void)rig.cache->set_tenant(rows.object(), a);
        for (std::size_t i = 0; i < 2; ++i) rig.load(rows.row(i));
        const auto read = [&](std::size_t row, TenantId tenant) {
          Block block;
          rows.read(row, [&] {
            block = rig.cache->access(rows.row(row), {.tenant = tenant});
            return bytes_of(trial, block);
          });
          const std::vector<CacheStats::Tenant> tenants = rig.cache->stats().tenants;
          trial.require(tenants[2].bytes_used <= Bytes{2 * kRow}, "no tenant exceeds its most");
        };
        const bool shrinks = trial.below(2) == 0;
        trial.together({[&] {
                          for (const std::size_t row : {2, 3, 4}) read(row, b);
                        },
                        [&] {
                          for (const std::size_t row : {4, 0, 5}) read(row, row == 0 ? a : b);
                        },
                        [&] {
                          rows.write(4, [&] { rig.cache->invalidate(rows.row(4)); });
                          if (!shrinks) return;
                          (void)rig.cache->resize(kDram, 0_B);
                          (void)rig.cache->resize(kDram, Bytes{4 * kRow});
                        }});
        for (std::size_t i = 0; i < 2 && !shrinks; ++i) {
          trial.require(rig.cache->access(rows.row(i)).hit(), "guaranteed blocks are not taken");
        }
        rig.cache->clear();
        for (const CacheStats::Tenant& tenant : rig.cache->stats().tenants) {
          trial.require(tenant.bytes_used == 0_B && tenant.bytes_pinned == 0_B, "no block is lost");
        }
      },
      0.2);
}

TEST(ExploreCache, PlansBesideClear_End) {
  explore([](Trial& trial) {
    Versions rows(trial, 4);
    rows.number();
    CacheRig rig(in_flight(trial, 4));
    std::vector<Extent> extents;
    for (std::size_t i = 0; i < 4; ++i) extents.push_back(rows.row(i));
    const auto plan = [&] {
      Prefetch ahead = rig.cache->prefetch(extents, {.window = Bytes{2 * kRow}});
      const Block block = rig.cache->access(extents[0], {.plan = &ahead});
      trial.require(rows.version_of(bytes_of(trial, block)) == 0, "a block has its bytes");
      const auto progress = ahead.progress();
      trial.require(progress.planned == 4 && progress.used <= progress.started,
                    "an extent is started before its use");
    };
    trial.together({plan, plan, [&] { rig.cache->clear(); }});
    trial.require(rig.cache->stats().bytes_pinned == 0_B, "no pin is left");
    trial.require(rig.cache->forget(rows.object()).has_value(), "forget() ends");
    trial.require(rig.cache->reading().empty(), "no plan is left");
  });
}

}  // namespace
}  // namespace headrace::explore
