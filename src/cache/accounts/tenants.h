// SPDX-License-Identifier: Apache-2.0
// The tenants of one node: their bytes, and whose blocks are evicted next.
//
// A block of another tenant may be evicted only from what that tenant has beyond its `least`. The
// victim is a block of the tenant with the most bytes beyond it, the one that asks included with
// the bytes that it asks for. Tenants of lower priority lose theirs first. A tenant at its `most`
// gets only blocks of its own.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cache/structures/entry.h"
#include "headrace/cache.h"

namespace headrace {

inline std::uint32_t number_of(TenantId tenant) { return static_cast<std::uint32_t>(tenant); }
inline bool has_tenant(const CacheOptions& options, TenantId tenant) {
  return number_of(tenant) <= options.tenants.size();
}

// The priority of a copy for a tenant: its own, if that is lower.
inline Priority priority_for(const std::vector<CacheTenant>& tenants, std::uint32_t tenant,
                             Priority asked) {
  const std::size_t named = std::size_t{tenant} - 1;
  return named < tenants.size() ? std::max(asked, tenants[named].priority) : asked;
}

// Numbers of tenants, in an order.
struct TenantTurns {
  std::array<std::uint8_t, CacheEntry::kMostTenants> numbers;
  std::size_t count = 0;

  void add(std::uint32_t number) { numbers[count++] = static_cast<std::uint8_t>(number); }
  const std::uint8_t* begin() const { return numbers.data(); }
  const std::uint8_t* end() const { return numbers.data() + count; }
};

// Guarded by the shard's lock.
class TenantShares {
 public:
  explicit TenantShares(const CacheOptions& options);

  static Status check(const std::vector<CacheTenant>& tenants);

  // A block gets or loses its frame.
  void add(const CacheEntry& entry) { tenants_[entry.tenant].used += entry.length; }
  void subtract(const CacheEntry& entry) { tenants_[entry.tenant].used -= entry.length; }
  // A block is on its way to another memory, or no longer: others cannot take it too.
  void leave(const CacheEntry& entry) { tenants_[entry.tenant].leaving += entry.length; }
  void left(const CacheEntry& entry) { tenants_[entry.tenant].leaving -= entry.length; }
  std::uint64_t leaving(std::uint32_t tenant) const { return tenants_[tenant].leaving; }
  std::uint64_t used(std::uint32_t tenant) const { return tenants_[tenant].used; }
  std::uint64_t most(std::uint32_t tenant, std::uint64_t budget) const {
    return share(tenants_[tenant].most, budget);
  }
  // From now on turns(), keeps() and is_full() are for a tenant that wants `bytes` more.
  void ask(std::uint32_t tenant, std::uint64_t bytes, std::uint64_t budget) {
    asks_ = tenant;
    wanted_ = bytes;
    budget_ = budget;
  }
  // For nobody: all blocks may be evicted.
  void ask_for_none(std::uint64_t budget) { ask(kNobody, 0, budget); }
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

  // The tenants whose blocks may be evicted, in this order.
  TenantTurns turns() const;
  // Adds what this node has to the counts of all nodes.
  void add_to(std::vector<CacheStats::Tenant>& stats) const;

 private:
  static constexpr std::uint32_t kNobody = CacheEntry::kMostTenants;

  struct Tenant {
    std::string name;
    double least = 0;
    double most = 1;
    Priority priority = Priority::demand;
    std::uint64_t used = 0;     // bytes of frames
    std::uint64_t leaving = 0;  // bytes of those
    std::uint64_t evictions = 0;
  };
  static std::uint64_t share(double of_budget, std::uint64_t budget) {
    return static_cast<std::uint64_t>(of_budget * static_cast<double>(budget));
  }
  std::uint64_t most() const { return most(asks_, budget_); }
  std::int64_t beyond_least(std::uint32_t number) const;

  std::vector<Tenant> tenants_;
  std::uint32_t asks_ = kNobody;
  std::uint64_t wanted_ = 0;
  std::uint64_t budget_ = 0;
};

// The bytes of the Blocks of tenants with a bound for them (CacheTenant::most_pinned). Thread-safe.
class TenantPins {
 public:
  // Options with all budgets, also of a chain.
  explicit TenantPins(const CacheOptions& options);

  // Whether some tenant has a bound.
  bool any() const { return any_; }
  bool bounds(TenantId tenant) const { return any_ && pins_of(tenant) != nullptr; }
  // Ignores a node without a budget. Calls are made one after the other.
  void set_budget(NodeId node, Bytes budget);
  // Reserves the bytes of a Block. False: they would be beyond the bound.
  bool reserve(TenantId tenant, Bytes bytes);
  Error full(TenantId tenant, Bytes bytes) const;
  // Bytes that its Blocks may have.
  std::uint64_t most(TenantId tenant) const {
    return bounds(tenant) ? most(*pins_of(tenant)) : ~std::uint64_t{0};
  }
  // The Block counts until its release. Returns the reserved bytes if it has no copy.
  void charge(Block& block, TenantId tenant);
  // Counts a clone, which cannot be refused.
  void add(const Block& block);
  void release(const Block& block);
  // Releases a Block that counts. Defined in core.cpp.
  [[gnu::noinline]] static void let_go(const Block& block) noexcept;

 private:
  struct Pins {
    std::string name;
    double most = 1;
    std::atomic<std::uint64_t> bytes{0};
  };
  // Null: it has no bound.
  Pins* pins_of(TenantId tenant) const {
    if (number_of(tenant) >= count_ || pins_[number_of(tenant)].most >= 1) return nullptr;
    return &pins_[number_of(tenant)];
  }
  std::uint64_t most(const Pins& pins) const {
    return static_cast<std::uint64_t>(pins.most * static_cast<double>(all_budgets_.load()));
  }

  const std::size_t count_;
  const std::unique_ptr<Pins[]> pins_;
  bool any_ = false;  // immutable after construction
  std::vector<std::pair<NodeId, Bytes>> budgets_;
  std::atomic<std::uint64_t> all_budgets_{0};
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
