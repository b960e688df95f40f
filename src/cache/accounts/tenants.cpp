// SPDX-License-Identifier: Apache-2.0
#include "cache/accounts/tenants.h"

#include <algorithm>
#include <array>

#include "cache/structures/readers.h"
#include "core/fail.h"

namespace headrace {

std::string_view to_string(Keep keep) {
  switch (keep) {
    case Keep::normal: return "normal";
    case Keep::longer: return "longer";
    case Keep::shorter: return "shorter";
  }
  return "unknown";
}

TenantOrders::TenantOrders(const CacheOptions& options) : tenants_(options.tenants.size() + 1) {
  for (std::size_t i = 0; i < tenants_.size(); ++i) {
    tenants_[i].order = options.eviction();
    if (i == 0) continue;
    tenants_[i].name = options.tenants[i - 1].name;
    tenants_[i].least = options.tenants[i - 1].least;
    tenants_[i].most = options.tenants[i - 1].most;
  }
}

Status TenantOrders::check(const std::vector<CacheTenant>& tenants) {
  if (tenants.size() >= CacheEntry::kMostTenants) {
    return fail(ErrorCode::invalid, "{} tenants; a cache can have at most {}", tenants.size(),
                CacheEntry::kMostTenants - 1);
  }
  double sum = 0;
  for (auto tenant = tenants.begin(); tenant != tenants.end(); ++tenant) {
    const auto same = [&](const CacheTenant& other) { return other.name == tenant->name; };
    if (tenant->name.empty() || std::any_of(tenants.begin(), tenant, same)) {
      return fail(ErrorCode::invalid, "the name '{}' of a tenant; give each one of its own",
                  tenant->name);
    }
    // Also false for NaN.
    if (!(tenant->least >= 0 && tenant->least <= tenant->most && tenant->most <= 1)) {
      return fail(ErrorCode::invalid,
                  "tenant '{}' has least {} and most {}; give 0 <= least <= most <= 1",
                  tenant->name, tenant->least, tenant->most);
    }
    sum += tenant->least;
  }
  constexpr double kRounding = 1e-9;
  if (sum <= 1 + kRounding) return {};
  return fail(ErrorCode::invalid, "the tenants' `least` add up to {}; give at most 1 in all", sum);
}

std::int64_t TenantOrders::beyond_least(std::uint32_t number) const {
  const Tenant& tenant = tenants_[number];
  const std::uint64_t used = tenant.used + (number == asks_ ? wanted_ : 0);
  return static_cast<std::int64_t>(used) - static_cast<std::int64_t>(share(tenant.least));
}

bool TenantOrders::keeps(const CacheEntry& entry) const {
  if (entry.tenant == asks_ || asks_ == kNobody) return false;
  return is_full() ||
         beyond_least(entry.tenant) < static_cast<std::int64_t>(std::uint64_t{entry.length});
}

bool TenantOrders::keeps(std::span<Frame* const> frames) const {
  if (asks_ == kNobody) return false;
  std::array<std::int64_t, CacheEntry::kMostTenants> lost{};
  for (const Frame* frame : frames) {
    const std::uint32_t tenant = static_cast<const CacheEntry*>(frame)->tenant;
    lost[tenant] += static_cast<std::int64_t>(std::uint64_t{frame->length});
    if (tenant != asks_ && lost[tenant] > beyond_least(tenant)) return true;
  }
  return false;
}

bool TenantOrders::is_full() const {
  return asks_ < tenants_.size() && tenants_[asks_].used + wanted_ > share(tenants_[asks_].most);
}

Error TenantOrders::full() const {
  const Tenant& tenant = tenants_[asks_];
  if (!may_fit()) {
    return fail(ErrorCode::exhausted,
                "the block of {} exceeds the {} of tenant '{}'; access smaller extents, or raise "
                "its `most`",
                to_string(Bytes{wanted_}), to_string(Bytes{share(tenant.most)}), tenant.name)
        .error();
  }
  return fail(ErrorCode::exhausted,
              "no space for {} of tenant '{}': it has {} of at most {}, and the rest of them is "
              "held or in flight; let Blocks go, or raise its `most`",
              to_string(Bytes{wanted_}), tenant.name, to_string(Bytes{tenant.used}),
              to_string(Bytes{share(tenant.most)}))
      .error();
}

bool TenantOrders::may_fit() const {
  return asks_ >= tenants_.size() || wanted_ <= share(tenants_[asks_].most);
}

void TenantOrders::insert(EvictionLinks& entry, const EvictionBlock& block) {
  tenant_of(entry).order->insert(entry, block);
}

void TenantOrders::remove(EvictionLinks& entry) { tenant_of(entry).order->remove(entry); }

void TenantOrders::evict(EvictionLinks& entry, std::uint64_t key) {
  tenant_of(entry).order->evict(entry, key);
}

void TenantOrders::touch(EvictionLinks& entry) { tenant_of(entry).order->touch(entry); }

EvictionLinks* TenantOrders::choose(const std::function<bool(EvictionLinks&)>& accept,
                                    unsigned effort) {
  if (is_full()) return tenants_[asks_].order->choose(accept, effort);
  std::array<std::uint32_t, CacheEntry::kMostTenants> numbers{};
  std::size_t count = 0;
  for (std::uint32_t i = 0; i < tenants_.size(); ++i) {
    // Blocks that are offered in vain lose their place in the order.
    if (i == asks_ || asks_ == kNobody || beyond_least(i) > 0) numbers[count++] = i;
  }
  std::ranges::sort(std::span(numbers).first(count), std::ranges::greater{},
                    [this](std::uint32_t number) { return beyond_least(number); });
  for (const std::uint32_t number : std::span(numbers).first(count)) {
    EvictionLinks* const chosen = tenants_[number].order->choose(accept, effort);
    if (chosen != nullptr) return chosen;
  }
  return nullptr;
}

void TenantOrders::add_to(std::vector<CacheStats::Tenant>& stats) const {
  for (std::size_t i = 0; i < tenants_.size(); ++i) {
    stats[i].evictions += tenants_[i].evictions;
    stats[i].bytes_used += Bytes{tenants_[i].used};
  }
}

TenantCounts::TenantCounts(const std::vector<CacheTenant>& tenants)
    : names_(1), stripes_(std::make_unique<Stripe[]>(kStripes)) {
  for (const CacheTenant& tenant : tenants) names_.push_back(tenant.name);
}

Result<TenantId> TenantCounts::find(std::string_view name) const {
  const auto at = std::find(names_.begin() + 1, names_.end(), name);
  if (at != names_.end()) return static_cast<TenantId>(at - names_.begin());
  return no_such(name);
}

Result<TenantId> TenantCounts::no_such(std::string_view name) {
  return fail(ErrorCode::absent, "the cache has no tenant '{}'; name it in `tenants`", name);
}

void TenantCounts::count(TenantId tenant, bool hit) {
  if (number_of(tenant) >= names_.size()) return;
  const auto thread = reinterpret_cast<std::uintptr_t>(this_thread_mark()) * 0x9e3779b97f4a7c15;
  Count& count = stripes_[thread >> 58].counts[number_of(tenant)];
  // Pairs with nothing: only the sum counts.
  (hit ? count.hits : count.misses).fetch_add(1, std::memory_order_relaxed);
}

std::uint64_t TenantCounts::sum() const {
  std::vector<CacheStats::Tenant> all;
  add_to(all);
  std::uint64_t sum = 0;
  for (const CacheStats::Tenant& tenant : all) sum += tenant.hits + tenant.misses;
  return sum;
}

void TenantCounts::add_to(std::vector<CacheStats::Tenant>& stats) const {
  stats.resize(names_.size());  // a child of fork() has no others
  for (std::size_t i = 0; i < names_.size(); ++i) {
    stats[i].name = names_[i];
    for (std::size_t stripe = 0; stripe < kStripes; ++stripe) {
      const Count& count = stripes_[stripe].counts[i];
      stats[i].hits += count.hits.load();
      stats[i].misses += count.misses.load();
    }
  }
}

}  // namespace headrace
