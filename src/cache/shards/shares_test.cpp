// SPDX-License-Identifier: Apache-2.0
// Tenants of a cache: what each is sure of, what it cannot exceed, and how long its blocks stay.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/cache_rig.h"
#include "tests/support/chain_rig.h"

namespace headrace {
namespace {

using namespace test;

constexpr std::uint64_t kShared = 4096;
constexpr std::uint64_t kBudget = 16 * kShared;

CacheRig::Options shared_by(std::vector<CacheTenant> tenants) {
  return {.cache = {.tenants = std::move(tenants)}, .budget = Bytes{kBudget}};
}

class CacheTenantsTest : public testing::Test {
 protected:
  explicit CacheTenantsTest(std::vector<CacheTenant> tenants = two(),
                            const std::vector<std::uint64_t>& chain = {})
      : rig([&] {
          auto options = chain.empty() ? shared_by({}) : chain_of(kBudget, chain);
          options.cache.tenants = std::move(tenants);
          options.fake.max_in_flight = 2;
          options.observe = false;  // so that slots hold pins
          return options;
        }()) {}
  static std::vector<CacheTenant> two() {
    return {{.name = "a", .least = 0.5}, {.name = "b", .most = 0.25}};
  }

  Extent block(std::uint64_t number) const { return source.at(number * kShared, kShared); }
  AccessOptions by(std::string_view name, Keep keep = Keep::normal) const {
    return {.keep = keep, .tenant = *rig.cache->tenant(name)};
  }
  PrefetchOptions by_plan(std::string_view name) const {
    return {.tenant = *rig.cache->tenant(name)};
  }
  void load(std::uint64_t number, const AccessOptions& options) {
    const Block block = rig.cache->access(this->block(number), options);
    rig.settle();
    EXPECT_EQ(block.state(), BlockState::ready) << number;
  }
  void scan(std::uint64_t first, std::uint64_t count, const AccessOptions& options) {
    for (std::uint64_t i = first; i < first + count; ++i) load(i, options);
  }
  std::uint64_t used(std::size_t tenant) const {
    return rig.cache->stats().tenants[tenant].bytes_used.value / kShared;
  }
  bool has(std::uint64_t number) { return rig.cache->access(block(number)).hit(); }

  Source source{kShared * 1000};
  CacheRig rig;
};

TEST_F(CacheTenantsTest, ScanWithoutATenant_LeavesTheGuaranteedBlocks) {
  scan(0, 16, by("a"));
  scan(100, 200, {});
  EXPECT_EQ(used(1), 12u) << "8 guaranteed, and half of the rest";
  EXPECT_EQ(used(0), 4u);
  EXPECT_EQ(rig.cache->stats().tenants[1].evictions, 4u);
}

TEST_F(CacheTenantsTest, PinnedRest_IsNotTakenFromTheGuarantee) {
  scan(0, 8, by("a"));
  std::vector<Block> pinned;
  for (std::uint64_t i = 100; i < 108; ++i) pinned.push_back(rig.cache->access(block(i)));
  rig.settle();
  EXPECT_EQ(rig.cache->access(block(200)).state(), BlockState::absent);
  EXPECT_EQ(used(1), 8u);
  load(8, by("a"));  // in the place of a block of its own
  EXPECT_EQ(used(1), 8u);
}

TEST_F(CacheTenantsTest, LargeBlock_DoesNotTakeARowOfGuaranteedBlocks) {
  scan(0, 9, by("a"));
  scan(100, 7, {});
  std::vector<Block> pinned;
  for (std::uint64_t i = 100; i < 107; ++i) pinned.push_back(rig.cache->access(block(i)));
  const Block large = rig.cache->access(source.at(kShared * 500, 2 * kShared));
  EXPECT_EQ(large.state(), BlockState::absent) << "one block of a row of two is beyond `least`";
  EXPECT_EQ(used(1), 9u);
}

TEST_F(CacheTenantsTest, TenantAtItsMost_EvictsItsOwnBlocks) {
  scan(0, 8, {});
  scan(100, 10, by("b"));
  EXPECT_EQ(used(2), 4u);
  EXPECT_EQ(used(0), 8u) << "although a quarter of the budget is free";
  EXPECT_EQ(rig.cache->stats().tenants[2].evictions, 6u);
}

TEST_F(CacheTenantsTest, BlockBeyondItsMost_IsRefusedAndEvictsNothing) {
  scan(100, 4, by("b"));
  EXPECT_EQ(rig.cache->access(source.at(0, 5 * kShared), by("b")).state(), BlockState::absent);
  EXPECT_EQ(used(2), 4u);
}

TEST_F(CacheTenantsTest, TenantWithAllOfItsMostPinned_IsRefusedUntilARelease) {
  std::vector<Block> pinned;
  for (std::uint64_t i = 0; i < 4; ++i) pinned.push_back(rig.cache->access(block(i), by("b")));
  rig.settle();
  EXPECT_EQ(rig.cache->stats().tenants[2].bytes_pinned, Bytes{4 * kShared});
  EXPECT_EQ(rig.cache->access(block(9), by("b")).state(), BlockState::absent);
  EXPECT_EQ(rig.cache->access(block(20), {}).state(), BlockState::filling) << "others go on";
  pinned.pop_back();
  load(9, by("b"));
}

TEST_F(CacheTenantsTest, Refusal_NamesTheTenantThatAsks) {
  const Opaque other(1_MiB);  // without bytes of its own to fall back to
  const auto why = [&](std::uint64_t blocks, const AccessOptions& options) {
    return rig.cache->access({&other, 0, Bytes{blocks * kShared}}, options).wait().error().message;
  };
  scan(0, 4, by("b"));
  std::vector<Block> pinned;
  for (std::uint64_t i = 0; i < 4; ++i) pinned.push_back(rig.cache->access(block(i)));
  EXPECT_NE(why(1, by("b")).find("tenant 'b': it has"), std::string::npos);
  const std::string too_large = why(17, {});
  EXPECT_NE(too_large.find("exceeds the budget"), std::string::npos) << too_large;
  const std::string beyond = why(5, by("b"));
  EXPECT_NE(beyond.find("exceeds the 16 KiB of tenant 'b'"), std::string::npos) << beyond;
}

TEST_F(CacheTenantsTest, HitOnABlockOfAnother_CountsForWhoAsks) {
  load(0, by("a"));
  load(0, by("b"));
  const auto tenants = rig.cache->stats().tenants;
  ASSERT_EQ(tenants.size(), 3u);
  EXPECT_EQ(tenants[1].name, "a");
  EXPECT_EQ(tenants[1].misses, 1u);
  EXPECT_EQ(tenants[2].hits, 1u);
  EXPECT_EQ(tenants[2].bytes_used, 0_B);
}

TEST_F(CacheTenantsTest, AccessesAndPlansThatNameNone_AreOfTheObjectsTenant) {
  ASSERT_TRUE(rig.cache->set_tenant(source.object(), by("a").tenant).has_value());
  load(0, {});
  load(0, {});
  load(1, by("b"));
  EXPECT_EQ(used(1), 1u);
  EXPECT_EQ(used(2), 1u) << "an access may name another";
  EXPECT_EQ(rig.cache->stats().tenants[1].hits, 1u);
  const Prefetch plan = rig.cache->prefetch(std::vector{block(2)});
  rig.settle();
  EXPECT_EQ(used(1), 2u);
  ASSERT_TRUE(rig.cache->forget(source.object()).has_value());
  load(3, {});
  EXPECT_EQ(used(0), 1u);
  EXPECT_EQ(rig.cache->set_tenant(source.object(), TenantId{3}).error().code, ErrorCode::invalid);
}

TEST_F(CacheTenantsTest, PlanOfATenant_StaysWithinItsMostAndGivesWayToDemand) {
  std::vector<Extent> extents;
  for (std::uint64_t i = 0; i < 12; ++i) extents.push_back(block(i));
  const Prefetch plan =
      rig.cache->prefetch(extents, {.lead = std::chrono::hours{1}, .tenant = by("b").tenant});
  rig.settle();
  EXPECT_LE(used(2), 4u);
  EXPECT_GT(used(2), 0u);
  for (std::uint64_t i = 100; i < 104; ++i) load(i, by("b"));
}

TEST_F(CacheTenantsTest, ShrunkenBudget_ShrinksTheShares) {
  ASSERT_TRUE(rig.cache->resize(kDram, Bytes{kBudget / 2}).has_value());
  scan(0, 8, by("a"));
  scan(100, 50, {});
  EXPECT_EQ(used(1), 6u) << "4 guaranteed, and half of the rest";
}

TEST_F(CacheTenantsTest, UnknownTenant_IsAnError) {
  EXPECT_EQ(rig.cache->tenant("c").error().code, ErrorCode::absent);
  EXPECT_EQ(rig.cache->tenant("").error().code, ErrorCode::absent);
  const CacheRig without;
  EXPECT_EQ(without.cache->tenant("a").error().code, ErrorCode::absent);
  const AccessOptions foreign{.tenant = TenantId{3}};
  const Block refused = rig.cache->access(block(0), foreign);
  EXPECT_EQ(refused.state(), BlockState::absent);
  EXPECT_EQ(without.cache->access(block(0), by("b")).state(), BlockState::absent);
  const Prefetch plan = rig.cache->prefetch(std::vector{block(1)}, {.tenant = TenantId{3}});
  EXPECT_EQ(plan.progress().invalid, 1u);
}

TEST_F(CacheTenantsTest, BadShares_AreRefused) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<std::vector<CacheTenant>> wrong = {
      {{.name = ""}},
      {{.name = "a"}, {.name = "a"}},
      {{.name = "a", .least = -0.1}},
      {{.name = "a", .most = 1.1}},
      {{.name = "a", .least = 0.5, .most = 0.4}},
      {{.name = "a", .least = nan}},
      {{.name = "a", .most = nan}},
      {{.name = "a", .most_pinned = 1.5}},
      {{.name = "a", .most_pinned = nan}},
      {{.name = "a", .least = 0.6}, {.name = "b", .least = 0.6}},
      std::vector<CacheTenant>(32)};
  for (const auto& tenants : wrong) {
    const auto made = Cache::create(*rig.mover, {.budgets = {{kDram, 1_MiB}}, .tenants = tenants});
    ASSERT_FALSE(made.has_value()) << tenants.size() << ' ' << tenants[0].name;
    EXPECT_EQ(made.error().code, ErrorCode::invalid);
  }
  std::vector<CacheTenant> most(31);
  for (std::size_t i = 0; i < most.size(); ++i) {
    most[i] = {.name = std::to_string(i), .least = 1.0 / 31};
  }
  EXPECT_TRUE(Cache::create(*rig.mover, {.budgets = {{kDram, 1_MiB}}, .tenants = most}));
}

// With `most` = 0 a tenant reads the sources.
class CacheTenantWithoutSpaceTest : public CacheTenantsTest {
 protected:
  CacheTenantWithoutSpaceTest() : CacheTenantsTest({{.name = "a", .most = 0}}) {}
};

TEST_F(CacheTenantWithoutSpaceTest, Access_ReadsTheSourceOrABlockOfOthers) {
  EXPECT_EQ(rig.cache->access(block(0), by("a")).state(), BlockState::absent);
  load(0, {});
  EXPECT_TRUE(rig.cache->access(block(0), by("a")).hit());
}

TEST_F(CacheTenantsTest, PlanOfATenant_PassesOverWhatIsBeyondItsMost) {
  const std::vector<Extent> extents{source.at(0, 5 * kShared), block(8), block(9)};
  const Prefetch plan = rig.cache->prefetch(extents, by_plan("b"));
  rig.settle();
  EXPECT_TRUE(has(8) && has(9));
}

class CacheTenantPriorityTest : public CacheTenantsTest {
 protected:
  CacheTenantPriorityTest()
      : CacheTenantsTest(
            {{.name = "a"}, {.name = "b", .least = 0.25, .priority = Priority::migration}}) {}
};

TEST_F(CacheTenantPriorityTest, LowerOne_GetsItsLeastAndTakesNoMore) {
  scan(0, 16, by("a"));
  scan(100, 50, by("b"));
  EXPECT_EQ(used(2), 4u);
  EXPECT_EQ(used(1), 12u);
  scan(200, 50, by("a"));
  EXPECT_EQ(used(2), 4u);
}

TEST_F(CacheTenantPriorityTest, CopiesOfTheLowerOne_GoLast) {
  rig.fake->hold(true);
  std::vector<Block> blocks;
  for (std::uint64_t i = 0; i < 8; ++i) blocks.push_back(rig.cache->access(block(i), by("b")));
  const Prefetch plan = rig.cache->prefetch(std::vector{block(8)}, by_plan("b"));
  blocks.push_back(rig.cache->access(block(7), by("b")));  // in flight
  blocks.push_back(rig.cache->access(block(20), by("a")));
  rig.fake->hold(false);
  rig.settle();
  std::vector<std::uint64_t> order;
  for (const Piece& piece : rig.fake->accepted()) order.push_back(piece.from.offset / kShared);
  const auto at = [&](std::uint64_t number) { return std::ranges::find(order, number); };
  EXPECT_LT(at(20), at(7));
  EXPECT_LT(at(20), at(8));
}

// At most four blocks of 16 are pinned by b.
class CacheTenantPinsTest : public CacheTenantsTest {
 protected:
  CacheTenantPinsTest() : CacheTenantsTest({{.name = "a"}, {.name = "b", .most_pinned = 0.25}}) {}
};

TEST_F(CacheTenantPinsTest, AccessBeyondTheBound_HasNoCopyUntilARelease) {
  scan(0, 10, by("a"));
  std::vector<Block> held(4);
  rig.cache->access(std::vector{block(0), block(1), block(20), block(2)}, held, by("b"));
  rig.settle();
  for (const Block& one : held) EXPECT_EQ(one.state(), BlockState::ready);
  EXPECT_EQ(rig.cache->access(block(3), by("b")).state(), BlockState::absent) << "though cached";
  EXPECT_EQ(rig.cache->access(block(3), by("a")).state(), BlockState::ready);
  const Opaque other(1_MiB);
  const auto why = rig.cache->access({&other, 0, Bytes{kShared}}, by("b")).wait().error();
  EXPECT_EQ(why.code, ErrorCode::exhausted);
  EXPECT_NE(why.message.find("tenant 'b' may not hold 4 KiB more"), std::string::npos);
  held.pop_back();
  load(3, by("b"));
  const Block clone = held[0].clone();  // counts, and is not refused
  EXPECT_EQ(rig.cache->access(block(3), by("b")).state(), BlockState::absent);
  EXPECT_EQ(rig.cache->stats().tenants[2].hits, 4u);
  ASSERT_TRUE(rig.cache->resize(kDram, Bytes{2 * kBudget}).has_value());
  load(3, by("b"));
}

TEST_F(CacheTenantPinsTest, RefusedAndFailedAccesses_HoldNothing) {
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(rig.cache->access(source.at(0, 5 * kShared), by("b")).state(), BlockState::absent);
    const Block wrong = rig.cache->access({&source.object(), ~0ULL, Bytes{kBudget}}, by("b"));
    EXPECT_EQ(wrong.wait().error().code, ErrorCode::invalid);
    (void)rig.cache->access(source.at(0, 0), by("b"));
  }
  std::vector<Block> held;
  for (std::uint64_t i = 0; i < 4; ++i) held.push_back(rig.cache->access(block(i), by("b")));
  rig.settle();
  EXPECT_EQ(held[3].state(), BlockState::ready);
}

TEST_F(CacheTenantPinsTest, PlanOfRefusedAccesses_GoesOn) {
  std::vector<Block> held;
  for (std::uint64_t i = 100; i < 104; ++i) held.push_back(rig.cache->access(block(i), by("b")));
  std::vector<Extent> extents;
  for (std::uint64_t i = 0; i < 8; ++i) extents.push_back(block(i));
  const Prefetch plan = rig.cache->prefetch(extents, {.window = Bytes{2 * kShared}});
  for (const Extent& extent : extents) {
    rig.settle();
    (void)rig.cache->access(extent, {.plan = &plan, .tenant = by("b").tenant});
  }
  EXPECT_EQ(plan.progress().used, 8u);
  EXPECT_EQ(plan.progress().started, 8u);
  EXPECT_EQ(rig.cache->stats().refusals, 8u);
}

TEST_F(CacheTenantPinsTest, ReadOfManyBlocks_PinsNoMoreThanTheBound) {
  std::vector<std::byte> bytes(12 * kShared);
  const Extent all = source.at(0, bytes.size());
  ASSERT_TRUE(rig.cache->read(all, bytes, {.block = Bytes{kShared}, .access = by("b")}));
  EXPECT_TRUE(source.equals(all, bytes));
  EXPECT_EQ(rig.cache->stats().refusals, 0u);
  EXPECT_EQ(used(2), 12u);
}

// Two memories, of 16 and 32 blocks.
class CacheTenantsInAChainTest : public CacheTenantsTest {
 protected:
  CacheTenantsInAChainTest() : CacheTenantsTest(two(), {2 * kBudget}) {}
  bool is_in(NodeId node, std::uint64_t number) {
    const Block found = rig.cache->access(block(number));
    return found.hit() && found.node() == node;
  }
};

TEST_F(CacheTenantsInAChainTest, Shares_HoldInEachMemory) {
  scan(0, 8, by("a"));
  scan(100, 4, {});
  scan(200, 40, by("b"));
  EXPECT_LE(used(2), 12u) << "a quarter of 16 and of 32";
  EXPECT_GE(used(2), 9u);
  for (std::uint64_t i = 100; i < 104; ++i) EXPECT_TRUE(is_in(kDram, i)) << "b demotes its own";
  scan(300, 200, {});
  for (std::uint64_t i = 0; i < 8; ++i) EXPECT_TRUE(is_in(kDram, i)) << "guaranteed there";
  EXPECT_GE(rig.cache->stats().demotions, 200u);
}

TEST_F(CacheTenantsInAChainTest, BlockThatIsPromoted_StaysItsTenants) {
  scan(0, 4, by("a"));
  scan(100, 30, {});
  scan(4, 12, by("a"));
  const std::uint64_t before = used(1);
  ASSERT_EQ(before, 16u);
  for (std::uint64_t round = 0; round < 3; ++round) {
    for (std::uint64_t i = 0; i < 16; ++i) {
      EXPECT_TRUE(rig.cache->access(block(i), by("b")).hit());
      rig.settle();
    }
  }
  EXPECT_GT(rig.cache->stats().promotions, 0u);
  EXPECT_EQ(used(1), before);
  EXPECT_EQ(used(2), 0u);
  EXPECT_EQ(rig.cache->stats().tenants[1].bytes_pinned, 0_B);
}

// Dirty blocks of a tenant at its most go back to their source.
TEST(CacheTenantWritesTest, TenantAtItsMost_WritesItsBlocksBack) {
  Source source(kShared * 100);
  auto options = shared_by({{.name = "a", .most = 0.25}});
  options.cache.writable = true;
  CacheRig rig(options);
  const AccessOptions write{.write = true, .tenant = *rig.cache->tenant("a")};
  for (std::uint64_t i = 0; i < 20; ++i) {
    Block block = rig.cache->access(source.at(i * kShared, kShared), write);
    rig.settle();
    const auto bytes = block.wait_to_write();
    ASSERT_TRUE(bytes.has_value()) << i << ' ' << bytes.error().message;
    (*bytes)[0] = static_cast<std::byte>(200 + i);
  }
  EXPECT_LE(rig.cache->stats().bytes_used, Bytes{4 * kShared});
  rig.cache->flush();
  for (std::uint64_t i = 0; i < 20; ++i) {
    EXPECT_EQ(source.bytes()[i * kShared], static_cast<std::byte>(200 + i));
  }
}

// A block for which the access expects longer or shorter use.
class CacheKeepTest : public CacheTenantsTest {
 protected:
  CacheKeepTest() : CacheTenantsTest(std::vector<CacheTenant>{}) {}
};

TEST_F(CacheKeepTest, BlockToKeepLonger_OutlivesAScan) {
  load(0, {.keep = Keep::longer});
  load(1, {});
  scan(100, 50, {});
  EXPECT_TRUE(has(0));
  EXPECT_FALSE(has(1));
}

TEST_F(CacheKeepTest, BlocksToKeepShorter_AreEvictedFirst) {
  scan(0, 8, {});
  scan(100, 50, {.keep = Keep::shorter});
  std::size_t kept = 0;
  for (std::uint64_t i = 0; i < 8; ++i) kept += has(i) ? 1 : 0;
  EXPECT_EQ(kept, 8u);
}

// Random accesses, pins and plans. No tenant exceeds its `most`, and no tenant takes what another
// is guaranteed.
class TenantModel {
 public:
  TenantModel() : rig_(any_rig(shares_, chain_)) {
    for (std::size_t i = 0; i < 3; ++i) {
      if (i == 0) continue;
      ids_[i] = *rig_.cache->tenant(std::to_string(i));
      RC_ASSERT(rig_.cache->set_tenant(sources_[i].object(), ids_[i]).has_value());
    }
  }

  void step() {
    before_ = rig_.cache->stats().tenants;
    switch (*rc::gen::weightedElement<int>({{8, 0}, {4, 1}, {2, 2}, {1, 3}})) {
      case 0: access(); break;
      case 1: release(); break;
      case 2: rig_.settle(); break;
      default: prefetch();
    }
    check();
  }

 private:
  static CacheRig::Options any_rig(const std::array<CacheTenant, 3>& shares,
                                   const std::vector<std::uint64_t>& chain) {
    auto options = chain.empty() ? shared_by({}) : chain_of(kBudget, chain);
    options.cache.tenants = {shares[1], shares[2]};
    options.observe = *rc::gen::arbitrary<bool>();
    options.cache.slab = *rc::gen::element(4096_B, 16384_B, 65536_B);
    options.cache.eviction = *eviction_order(*rc::gen::element("s3-fifo", "sieve", "clock"));
    return options;
  }
  static std::array<CacheTenant, 3> any_shares() {
    std::array<CacheTenant, 3> shares;
    int left = 10;
    for (std::size_t i = 1; i < 3; ++i) {
      const int least = *rc::gen::inRange(0, left + 1);
      left -= least;
      shares[i] = {.name = std::to_string(i),
                   .least = least / 10.0,
                   .most = *rc::gen::inRange(least, 11) / 10.0,
                   .most_pinned = *rc::gen::element(1.0, 1.0, 0.3),
                   .priority = *rc::gen::element(Priority::demand, Priority::migration)};
    }
    return shares;
  }
  // The tenant that accesses names itself, or accesses an object of its own.
  TenantId any_tenant() {
    acts_ = *rc::gen::inRange<std::size_t>(0, 3);
    const bool named = acts_ > 0 && *rc::gen::arbitrary<bool>();
    of_ = named ? *rc::gen::inRange<std::size_t>(0, 3) : acts_;
    return named ? ids_[acts_] : TenantId{};
  }
  Extent any_extent() {
    const auto length = *rc::gen::element<std::uint64_t>(4096, 4096, 8192, 1000);
    return sources_[of_].at(kShared * *rc::gen::inRange<std::uint64_t>(0, 60), length);
  }
  void access() {
    const TenantId tenant = any_tenant();
    const Extent extent = any_extent();
    const Keep keep = *rc::gen::element(Keep::normal, Keep::longer, Keep::shorter);
    Block block = rig_.cache->access(extent, {.keep = keep, .tenant = tenant});
    ++accesses_[acts_];
    RC_ASSERT(sources_[of_].equals(extent, *block.now()));
    if (*rc::gen::inRange(0, 3) > 0) return;
    if (block.state() != BlockState::absent) pinned_[acts_] += extent.length.value;
    held_.emplace_back(acts_, std::move(block));
    RC_ASSERT(pinned_[acts_] <= share(shares_[acts_].most_pinned));
  }
  void release() {
    if (held_.empty()) return;
    const auto at = held_.begin() + *rc::gen::inRange(0, int(held_.size()));
    const auto& [tenant, block] = *at;
    // A copy that failed counts until its Block is released.
    if (block.state() != BlockState::absent) pinned_[tenant] -= block.extent().length.value;
    held_.erase(at);
  }
  void prefetch() {
    const TenantId tenant = any_tenant();
    planned_[acts_] = true;
    std::vector<Extent> extents;
    for (int i = *rc::gen::inRange(1, 12); i > 0; --i) extents.push_back(any_extent());
    plans_.push_back(rig_.cache->prefetch(extents, {.tenant = tenant}));
  }
  std::uint64_t share(double of_budget) const {
    auto bytes = static_cast<std::uint64_t>(of_budget * kBudget);
    for (const std::uint64_t more : chain_) {
      bytes += static_cast<std::uint64_t>(of_budget * static_cast<double>(more));
    }
    return bytes;
  }
  void check() {
    const CacheStats stats = rig_.cache->stats();
    RC_ASSERT(stats.tenants.size() == 3u);
    Bytes sum;
    for (std::size_t i = 0; i < 3; ++i) {
      const auto& now = stats.tenants[i];
      sum += now.bytes_used;
      RC_ASSERT(now.bytes_used.value <= share(shares_[i].most));
      RC_ASSERT(now.hits + now.misses == accesses_[i]);
      RC_ASSERT(now.bytes_pinned <= now.bytes_used);
      // Plans act for their tenant during every step.
      // A demoted block may find the next memory full of pins, though within its `least` there.
      if (i == acts_ || planned_[i] || !chain_.empty()) continue;
      RC_ASSERT(now.bytes_used.value >=
                std::min(before_[i].bytes_used.value, share(shares_[i].least)));
    }
    RC_ASSERT(sum == stats.bytes_used);
  }

  const std::array<CacheTenant, 3> shares_ = any_shares();
  const std::vector<std::uint64_t> chain_ =
      *rc::gen::element(std::vector<std::uint64_t>{}, std::vector<std::uint64_t>{kBudget},
                        std::vector<std::uint64_t>{kBudget / 2, 2 * kBudget});
  std::array<Source, 3> sources_{Source(kShared * 64), Source(kShared * 64), Source(kShared * 64)};
  CacheRig rig_;
  std::array<TenantId, 3> ids_{};
  std::array<std::uint64_t, 3> accesses_{};
  std::array<bool, 3> planned_{};
  std::size_t acts_ = 0;
  std::size_t of_ = 0;  // whose object
  std::vector<CacheStats::Tenant> before_;
  std::vector<std::pair<std::size_t, Block>> held_;  // with their tenants
  std::array<std::uint64_t, 3> pinned_{};
  std::vector<Prefetch> plans_;
};

RC_GTEST_PROP(CacheTenantModelTest, RandomOperationsKeepTheShares, ()) {
  TenantModel model;
  for (int step = *rc::gen::inRange(1, 120); step > 0; --step) model.step();
}

}  // namespace
}  // namespace headrace
