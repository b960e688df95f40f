// SPDX-License-Identifier: Apache-2.0
#include "cache/accounts/tenants.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

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

TenantShares::TenantShares(const CacheOptions& options) : tenants_(options.tenants.size() + 1) {
  for (std::size_t i = 1; i < tenants_.size(); ++i) {
    tenants_[i].name = options.tenants[i - 1].name;
    tenants_[i].least = options.tenants[i - 1].least;
    tenants_[i].most = options.tenants[i - 1].most;
    tenants_[i].priority = options.tenants[i - 1].priority;
  }
}

Status TenantShares::check(const std::vector<CacheTenant>& tenants) {
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
    if (!(tenant->most_pinned >= 0 && tenant->most_pinned <= 1)) {
      return fail(ErrorCode::invalid, "tenant '{}' has most_pinned {}; give 0 to 1", tenant->name,
                  tenant->most_pinned);
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
  return fail(ErrorCode::invalid, "the tenants' `least` add up to {:.4}; give at most 1 in all",
              sum);
}

std::int64_t TenantShares::beyond_least(std::uint32_t number) const {
  const Tenant& tenant = tenants_[number];
  const std::uint64_t used = tenant.used - tenant.leaving + (number == asks_ ? wanted_ : 0);
  return static_cast<std::int64_t>(used) - static_cast<std::int64_t>(share(tenant.least, budget_));
}

bool TenantShares::keeps(const CacheEntry& entry) const {
  if (entry.tenant == asks_ || asks_ == kNobody) return false;
  return is_full() ||
         beyond_least(entry.tenant) < static_cast<std::int64_t>(std::uint64_t{entry.length});
}

bool TenantShares::keeps(std::span<Frame* const> frames) const {
  if (asks_ == kNobody) return false;
  std::array<std::int64_t, CacheEntry::kMostTenants> lost{};
  for (const Frame* frame : frames) {
    const std::uint32_t tenant = static_cast<const CacheEntry*>(frame)->tenant;
    lost[tenant] += static_cast<std::int64_t>(std::uint64_t{frame->length});
    if (tenant != asks_ && lost[tenant] > beyond_least(tenant)) return true;
  }
  return false;
}

bool TenantShares::is_full() const {
  return asks_ < tenants_.size() && tenants_[asks_].used + wanted_ > most();
}

Error TenantShares::full() const {
  const Tenant& tenant = tenants_[asks_];
  if (!may_fit()) {
    return fail(ErrorCode::exhausted,
                "the block of {} exceeds the {} of tenant '{}'; access smaller extents, or raise "
                "its `most`",
                to_string(Bytes{wanted_}), to_string(Bytes{most()}), tenant.name)
        .error();
  }
  return fail(ErrorCode::exhausted,
              "no space for {} of tenant '{}': it has {} of at most {}, and the rest of them is "
              "held or in flight; let Blocks go, or raise its `most`",
              to_string(Bytes{wanted_}), tenant.name, to_string(Bytes{tenant.used}),
              to_string(Bytes{most()}))
      .error();
}

bool TenantShares::may_fit() const { return asks_ >= tenants_.size() || wanted_ <= most(); }

TenantTurns TenantShares::turns() const {
  TenantTurns turns;
  if (is_full()) {
    turns.add(asks_);
    return turns;
  }
  std::array<std::int64_t, CacheEntry::kMostTenants> beyond;
  for (std::uint32_t i = 0; i < tenants_.size(); ++i) {
    beyond[i] = beyond_least(i);
    if (tenants_[i].used == 0) continue;
    if (i == asks_ || asks_ == kNobody || beyond[i] > 0) turns.add(i);
  }
  std::ranges::sort(std::span(turns.numbers).first(turns.count), std::ranges::greater{},
                    [&](std::uint8_t number) {
                      return std::tuple(beyond[number] > 0, tenants_[number].priority,
                                        beyond[number]);
                    });
  return turns;
}

void TenantShares::add_to(std::vector<CacheStats::Tenant>& stats) const {
  for (std::size_t i = 0; i < tenants_.size(); ++i) {
    stats[i].evictions += tenants_[i].evictions;
    stats[i].bytes_used += Bytes{tenants_[i].used};
  }
}

TenantPins::TenantPins(const CacheOptions& options)
    : count_(options.tenants.size() + 1),
      pins_(std::make_unique<Pins[]>(count_)),
      budgets_(options.budgets) {
  for (std::size_t i = 1; i < count_; ++i) {
    pins_[i].name = options.tenants[i - 1].name;
    pins_[i].most = options.tenants[i - 1].most_pinned;
    any_ = any_ || pins_[i].most < 1;
  }
  for (const auto& [id, budget] : budgets_) all_budgets_ += budget.value;
}

void TenantPins::set_budget(NodeId node, Bytes budget) {
  std::uint64_t all = 0;
  for (auto& [id, bytes] : budgets_) {
    if (id == node) bytes = budget;
    all += bytes.value;
  }
  all_budgets_ = all;
}

bool TenantPins::reserve(TenantId tenant, Bytes bytes) {
  Pins& pins = *pins_of(tenant);
  const std::uint64_t most = this->most(pins);
  std::uint64_t seen = pins.bytes.load();
  while (bytes.value <= most && seen <= most - bytes.value) {
    if (pins.bytes.compare_exchange_weak(seen, seen + bytes.value)) return true;
  }
  return false;
}

Error TenantPins::full(TenantId tenant, Bytes bytes) const {
  const Pins& pins = *pins_of(tenant);
  return fail(ErrorCode::exhausted,
              "tenant '{}' may not hold {} more: its Blocks have {} of at most {}; let Blocks go, "
              "or give it more by CacheTenant::most_pinned",
              pins.name, to_string(bytes), to_string(Bytes{pins.bytes.load()}),
              to_string(Bytes{most(pins)}))
      .error();
}

// Its slot is hidden from the short way of Block::let_go(), which knows no tenant.
void TenantPins::charge(Block& block, TenantId tenant) {
  if (block.entry_ == nullptr) {
    pins_of(tenant)->bytes -= block.extent_.length.value;
    return;
  }
  block.budget_or_slot_ = reinterpret_cast<std::uintptr_t>(std::exchange(block.slot_, nullptr));
  block.node_or_tenant_ = static_cast<std::uint16_t>(tenant);
}

void TenantPins::add(const Block& block) {
  pins_of(static_cast<TenantId>(block.node_or_tenant_))->bytes += block.extent_.length.value;
}

void TenantPins::release(const Block& block) {
  pins_of(static_cast<TenantId>(block.node_or_tenant_))->bytes -= block.extent_.length.value;
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
