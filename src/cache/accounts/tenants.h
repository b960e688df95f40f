// SPDX-License-Identifier: Apache-2.0
// The tenants of one node: their bytes, and an eviction order for each, which together are the
// node's order.
//
// A block of another tenant may be evicted only from what that tenant has beyond its `least`. The
// victim is a block of the tenant with the most bytes beyond it, the one that asks included with
// the bytes that it asks for. A tenant at its `most` gets only blocks of its own.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/structures/entry.h"
#include "headrace/cache.h"

namespace headrace {

inline std::uint32_t number_of(TenantId tenant) { return static_cast<std::uint32_t>(tenant); }
inline bool has_tenant(const CacheOptions& options, TenantId tenant) {
  return number_of(tenant) <= options.tenants.size();
}

// Guarded by the shard's lock.
class TenantOrders final : public EvictionOrder {
 public:
  explicit TenantOrders(const CacheOptions& options);

  static Status check(const std::vector<CacheTenant>& tenants);

  // A block gets or loses its frame.
  void add(const CacheEntry& entry) { tenants_[entry.tenant].used += entry.length; }
  void subtract(const CacheEntry& entry) { tenants_[entry.tenant].used -= entry.length; }
  // From now on choose(), keeps() and is_full() are for a tenant that wants `bytes` more.
  void ask(std::uint32_t tenant, std::uint64_t bytes, std::uint64_t budget) {
    asks_ = tenant;
    wanted_ = bytes;
    budget_ = budget;
  }
  // For nobody: all blocks may be evicted.
  void ask_for_none(std::uint64_t budget) { ask(kNobody, 0, budget); }
  std::uint32_t asks() const { return asks_; }
  // Whether other tenants may not evict all of these.
  bool keeps(std::span<Frame* const> frames) const;
  // Whether the tenant that asks may not evict this one.
  bool keeps(const CacheEntry& entry) const;
  // Whether the tenant that asks must evict blocks of its own first.
  bool is_full() const;
  // The reason of a refusal while it is full.
  Error full() const;
  // False: no eviction makes the space within its `most`.
  bool may_fit() const;
  void count_eviction(const CacheEntry& entry) { ++tenants_[entry.tenant].evictions; }

  void insert(EvictionLinks& entry, const EvictionBlock& block) override;
  void remove(EvictionLinks& entry) override;
  void evict(EvictionLinks& entry, std::uint64_t key) override;
  EvictionBlock::Use use_of(const EvictionLinks& entry) const override {
    return tenants_[static_cast<const CacheEntry&>(entry).tenant].order->use_of(entry);
  }
  void touch(EvictionLinks& entry) override;
  bool marks() const override { return tenants_[0].order->marks(); }
  // `effort` for each tenant.
  EvictionLinks* choose(const std::function<bool(EvictionLinks&)>& accept,
                        unsigned effort) override;
  // Adds what this node has to the counts of all nodes.
  void add_to(std::vector<CacheStats::Tenant>& stats) const;

 private:
  static constexpr std::uint32_t kNobody = CacheEntry::kMostTenants;

  struct Tenant {
    std::unique_ptr<EvictionOrder> order;
    std::string name;
    double least = 0;
    double most = 1;
    std::uint64_t used = 0;  // bytes of frames
    std::uint64_t evictions = 0;
  };
  Tenant& tenant_of(EvictionLinks& entry) {
    return tenants_[static_cast<CacheEntry&>(entry).tenant];
  }
  std::uint64_t share(double of_budget) const {
    return static_cast<std::uint64_t>(of_budget * static_cast<double>(budget_));
  }
  std::int64_t beyond_least(std::uint32_t number) const;

  std::vector<Tenant> tenants_;
  std::uint32_t asks_ = kNobody;
  std::uint64_t wanted_ = 0;
  std::uint64_t budget_ = 0;
};

// The accesses of each tenant. Threads count in different cache lines. Thread-safe.
class TenantCounts {
 public:
  explicit TenantCounts(const std::vector<CacheTenant>& tenants);

  // Errors: absent: no such name.
  Result<TenantId> find(std::string_view name) const;
  static Result<TenantId> no_such(std::string_view name);
  // Ignores a tenant of another cache.
  void count(TenantId tenant, bool hit);
  // All accesses so far.
  std::uint64_t sum() const;
  // Sets the names and the counts.
  void add_to(std::vector<CacheStats::Tenant>& stats) const;

 private:
  struct Count {
    std::atomic<std::uint64_t> hits{0}, misses{0};
  };
  struct alignas(64) Stripe {
    std::array<Count, CacheEntry::kMostTenants> counts;
  };
  static constexpr std::size_t kStripes = 64;

  std::vector<std::string> names_;  // the first is empty
  const std::unique_ptr<Stripe[]> stripes_;
};

}  // namespace headrace
