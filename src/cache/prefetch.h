// SPDX-License-Identifier: Apache-2.0
// The plans of a shard: which extents are fetched next, and how long they are protected
// (docs/design/cache/plans.md). Class Pump (core.h) starts and ends plans, and takes the lock.
//
// Guarded by the shard's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cache/plans/plan.h"
#include "cache/space.h"
#include "headrace/cache.h"

namespace headrace {

class Prefetcher {
 public:
  explicit Prefetcher(const Shard& shard) : shard_(shard) {}

  bool empty() const { return plans_.empty(); }
  // Adds a plan. No access and no pump uses it before list().
  void add(std::shared_ptr<PrefetchPlan> plan, CacheCore& core);
  void list(PrefetchPlan& plan);
  // Whether the caller must end the plan. No access uses it from now on.
  static bool give_up(PrefetchPlan& plan);
  // A plan that was not given up, given up now; null: none.
  std::shared_ptr<PrefetchPlan> give_up_any();
  // Ends one slice of a plan that was given up. Drops its blocks whose copy no engine has begun.
  // `at`: 0 at first. True: the plan has ended.
  bool end_some(const std::shared_ptr<PrefetchPlan>& plan, std::size_t& at);

  // One thread at a time starts copies. False: another one does, and goes on once more; or there
  // are no plans.
  bool begin_pump();
  // Whether the thread has started all. `left`: the blocks that it may still start.
  bool end_pump(std::size_t left);
  void give_up_pump();
  // The pumping thread looks again.
  void pump_again() { pump_again_ = true; }
  // The next block of the plan whose turn it is; null: none can be started now. Of a plan with many
  // items to skip, it skips one slice and asks for another pump. `spare`: an entry to use, or null.
  CacheEntry* start_next(bool may_grow, CacheEntry*& spare, std::optional<Growth>& wanted);

  // Whether an item of a plan overlaps `range`.
  bool are_concerned(const Range& range) const;
  // An access to `range` uses the plan that it names, or else each unnamed plan. In a plan it uses
  // the first item that covers the range and all items inside it. A repeated extent is used once.
  // Whether any item was used.
  bool use(const Range& range, const AccessOptions& options);
  // The time until a plan uses a block of `range` next, if consumers keep their pace. Nothing: no
  // plan will use it. `paced`: whether the pace of that consumer is known.
  std::optional<Nanoseconds> next_use(const Range& range, bool* paced = nullptr) const;
  // Gives a cached block that a new plan may use its place in NextUses.
  void notice(CacheEntry& entry);
  // The block of these items was dropped or failed. An item that failed in a run is tried alone.
  void unplan(CacheEntry& entry, PlanItem::State state);
  // All plans: paused consumers first, then those with the most bytes ahead.
  std::vector<PrefetchPlan*> paused_first() const;
  // The objects that plans have yet to read.
  std::vector<ObjectId> reading() const;

 private:
  CacheEntry* start_item(PlanItem& item, bool may_grow, CacheEntry*& spare,
                         std::optional<Growth>& wanted);
  std::uint64_t window_of(const PrefetchPlan& plan, std::uint16_t node) const;
  std::uint64_t share_of(const Space::Node& node) const;
  bool grants(const PlanItem& item, std::uint64_t bytes);
  void reserve(const PlanItem& item, std::uint64_t bytes);
  void set_idle(PrefetchPlan& plan, bool idle);
  void take_back(const PlanItem& item, std::uint64_t bytes);
  std::uint32_t tenant_of(const PlanItem& item) const;
  SpaceRequest request_for(const PlanItem& item, const Range& bytes) const;
  std::uint64_t run_from(const PlanItem& item, std::uint64_t most) const;
  Range block_of(const PlanItem& item, std::uint64_t run) const;
  std::uint64_t not_there_of(const PlanItem& item, std::uint64_t run) const;
  void adopt(PlanItem& item, CacheEntry& entry);
  void adopt_all(PlanItem& item, CacheEntry& entry, std::uint64_t most);
  void let_go(PlanItem& item, PlanItem::State state);
  void unprotect(CacheEntry& entry, PlanItem::State state);
  void let_go_unused(PlanItem& item, PlanItem::State state);
  bool is_consumers(PrefetchPlan& plan, const PlanItem& item) const;
  bool use_in(PrefetchPlan& plan, const Range& range);
  void pass_over(PrefetchPlan& plan, std::size_t& effort);

  const Shard& shard_;
  std::vector<std::shared_ptr<PrefetchPlan>> plans_;
  std::size_t turn_ = 0;  // index of the plan whose turn it is
  std::size_t idle_ = 0;  // number of idle plans
  Nanoseconds stall_look_{0};
  bool pumping_ = false;
  bool pump_again_ = false;
};

}  // namespace headrace
