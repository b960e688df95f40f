// SPDX-License-Identifier: Apache-2.0
#include "cache/accounts/tenants.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace headrace {
namespace {

constexpr std::uint64_t kBudget = 1000;

// Three tenants: the one without a name, one with 500 bytes guaranteed, one with at most 300.
class TenantOrdersTest : public testing::Test {
 protected:
  CacheEntry& add(std::uint32_t tenant, std::uint64_t length) {
    CacheEntry& entry = *entries.emplace_back(std::make_unique<CacheEntry>());
    entry.tenant = tenant & (CacheEntry::kMostTenants - 1);
    entry.length = length;
    orders.add(entry);
    orders.insert(entry, {.key = entries.size(), .bytes = length});
    return entry;
  }
  CacheEntry* victim() {
    return static_cast<CacheEntry*>(orders.choose([](EvictionLinks&) { return true; }, 8));
  }

  std::vector<std::unique_ptr<CacheEntry>> entries;
  TenantOrders orders{{.tenants = {{.name = "a", .least = 0.5}, {.name = "b", .most = 0.3}}}};
};

TEST_F(TenantOrdersTest, Victim_IsOfTheTenantWithMostBeyondItsLeast) {
  add(1, 700);
  CacheEntry& other = add(0, 250);
  orders.ask(2, 100, kBudget);
  EXPECT_EQ(victim(), &other) << "700 are 200 beyond 500";
  orders.ask(1, 100, kBudget);
  EXPECT_EQ(victim()->tenant, 1u) << "with the 100 that it asks for";
}

TEST_F(TenantOrdersTest, GuaranteedBytes_AreOfferedOnlyToTheirTenant) {
  CacheEntry& kept = add(1, 500);
  orders.ask(0, 100, kBudget);
  EXPECT_EQ(victim(), nullptr);
  EXPECT_TRUE(orders.keeps(kept));
  orders.ask(1, 100, kBudget);
  EXPECT_EQ(victim(), &kept);
  EXPECT_FALSE(orders.keeps(kept));
  orders.ask_for_none(kBudget);
  EXPECT_EQ(victim(), &kept);
}

TEST_F(TenantOrdersTest, RowThatIsGuaranteedInPart_IsKept) {
  CacheEntry& one = add(1, 400);
  CacheEntry& two = add(1, 400);
  orders.ask(0, 100, kBudget);
  EXPECT_TRUE(orders.keeps(one));
  orders.subtract(two);
  two.length = 600;
  orders.add(two);
  EXPECT_FALSE(orders.keeps(one));
  Frame* const row[] = {&one, &two};
  EXPECT_TRUE(orders.keeps(row)) << "1000 of 1000 bytes, of which 500 are guaranteed";
}

TEST_F(TenantOrdersTest, TenantAtItsMost_IsOfferedItsOwn) {
  add(0, 500);
  CacheEntry& own = add(2, 250);
  orders.ask(2, 50, kBudget);
  EXPECT_FALSE(orders.is_full());
  orders.ask(2, 51, kBudget);
  EXPECT_TRUE(orders.is_full());
  EXPECT_TRUE(orders.may_fit());
  EXPECT_EQ(victim(), &own);
  EXPECT_NE(orders.full().message.find("tenant 'b'"), std::string::npos);
  orders.ask(2, 301, kBudget);
  EXPECT_FALSE(orders.may_fit());
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
