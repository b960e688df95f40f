// SPDX-License-Identifier: Apache-2.0
#include "cache/accounts/tenants.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace headrace {
namespace {

constexpr std::uint64_t kBudget = 1000;

// Three tenants: the one without a name, one with 500 bytes guaranteed, one with at most 300.
class TenantSharesTest : public testing::Test {
 protected:
  CacheEntry& add(std::uint32_t tenant, std::uint64_t length) {
    CacheEntry& entry = *entries.emplace_back(std::make_unique<CacheEntry>());
    entry.tenant = tenant & (CacheEntry::kMostTenants - 1);
    entry.length = length;
    shares.add(entry);
    return entry;
  }
  std::vector<int> turns() const {
    const TenantTurns turns = shares.turns();
    return {turns.begin(), turns.end()};
  }

  std::vector<std::unique_ptr<CacheEntry>> entries;
  TenantShares shares{{.tenants = {{.name = "a", .least = 0.5}, {.name = "b", .most = 0.3}}}};
};

using Turns = std::vector<int>;

TEST_F(TenantSharesTest, Victim_IsOfTheTenantWithMostBeyondItsLeast) {
  add(1, 700);
  add(0, 250);
  shares.ask(2, 100, kBudget);
  EXPECT_EQ(turns(), (Turns{0, 1})) << "700 are 200 beyond 500";
  shares.ask(1, 100, kBudget);
  EXPECT_EQ(turns(), (Turns{1, 0})) << "with the 100 that it asks for";
}

TEST_F(TenantSharesTest, GuaranteedBytes_AreOfferedOnlyToTheirTenant) {
  const CacheEntry& kept = add(1, 500);
  shares.ask(0, 100, kBudget);
  EXPECT_EQ(turns(), Turns{});
  EXPECT_TRUE(shares.keeps(kept));
  shares.ask(1, 100, kBudget);
  EXPECT_EQ(turns(), Turns{1});
  EXPECT_FALSE(shares.keeps(kept));
  shares.ask_for_none(kBudget);
  EXPECT_EQ(turns(), Turns{1});
}

TEST_F(TenantSharesTest, RowThatIsGuaranteedInPart_IsKept) {
  CacheEntry& one = add(1, 400);
  CacheEntry& two = add(1, 400);
  shares.ask(0, 100, kBudget);
  EXPECT_TRUE(shares.keeps(one));
  shares.subtract(two);
  two.length = 600;
  shares.add(two);
  EXPECT_FALSE(shares.keeps(one));
  Frame* const row[] = {&one, &two};
  EXPECT_TRUE(shares.keeps(row)) << "1000 of 1000 bytes, of which 500 are guaranteed";
}

TEST_F(TenantSharesTest, TenantAtItsMost_IsOfferedItsOwn) {
  add(0, 500);
  add(2, 250);
  shares.ask(2, 50, kBudget);
  EXPECT_FALSE(shares.is_full());
  shares.ask(2, 51, kBudget);
  EXPECT_TRUE(shares.is_full());
  EXPECT_TRUE(shares.may_fit());
  EXPECT_EQ(turns(), Turns{2});
  EXPECT_NE(shares.full().message.find("tenant 'b'"), std::string::npos);
  shares.ask(2, 301, kBudget);
  EXPECT_FALSE(shares.may_fit());
}

TEST_F(TenantSharesTest, LowerPriority_GivesWayFirstWithWhatIsBeyondItsLeast) {
  shares = TenantShares({.tenants = {{.name = "a"},
                                     {.name = "b", .least = 0.1, .priority = Priority::migration},
                                     {.name = "c", .priority = Priority::prefetch}}});
  add(1, 600);
  CacheEntry& low = add(2, 150);
  add(3, 200);
  shares.ask(1, 100, kBudget);
  EXPECT_EQ(turns(), (Turns{2, 3, 1}));
  shares.subtract(low);
  low.length = 100;
  shares.add(low);
  shares.ask(1, 100, kBudget);
  EXPECT_EQ(turns(), (Turns{3, 1})) << "100 are guaranteed";
  shares.ask(2, 100, kBudget);
  EXPECT_EQ(turns(), (Turns{2, 3, 1})) << "its own go first";
  shares.subtract(low);
  low.length = 50;
  shares.add(low);
  shares.ask(2, 50, kBudget);
  EXPECT_EQ(turns(), (Turns{3, 1, 2})) << "within its least";
}

TEST(TenantCountsTest, ThreadsCountEachAccessOnce) {
  TenantCounts counts({{.name = "a"}});
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        for (int k = 0; k < 1000; ++k) counts.count(TenantId{1}, k % 4 == 0);
      });
    }
  }
  counts.count(TenantId{2}, true);  // of another cache
  std::vector<CacheStats::Tenant> stats;
  counts.add_to(stats);
  ASSERT_EQ(stats.size(), 2u);
  EXPECT_EQ(stats[1].name, "a");
  EXPECT_EQ(stats[1].hits, 1000u);
  EXPECT_EQ(stats[1].misses, 3000u);
  EXPECT_EQ(stats[0].hits + stats[0].misses, 0u);
}

}  // namespace
}  // namespace headrace
