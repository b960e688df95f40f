// SPDX-License-Identifier: Apache-2.0
#include "headrace/cache/explain.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "cache/shards/shards.h"
#include "core/fail.h"
#include "core/waiting/duration.h"
#include "place/place.h"

namespace headrace {
namespace {

Nanoseconds of_seconds(double time) {
  return Nanoseconds{static_cast<std::int64_t>(std::clamp(time, -1e9, 1e9) * 1e9)};
}

std::optional<Nanoseconds> copy_time(const Machine& machine, NodeId from, NodeId to, Bytes bytes) {
  std::optional<Nanoseconds> best;
  for (const CopyRate& rate : machine.copy_rates) {
    if (rate.from != from || rate.to != to || rate.bandwidth.value <= 0) continue;
    const double time =
        seconds(rate.latency) + static_cast<double>(bytes.value) / rate.bandwidth.value;
    if (!best || of_seconds(time) < *best) best = of_seconds(time);
  }
  return best;
}

// The time by which reading the bytes from `from` is longer than from `to`. Latencies count if
// both are known.
std::optional<Nanoseconds> difference(const Node& from, const Node& to, Bytes bytes,
                                      std::optional<NodeId> initiator) {
  for (const bool measured : {true, false}) {
    const auto slow = by_bandwidth(initiator, measured)(from);
    const auto fast = by_bandwidth(initiator, measured)(to);
    if (!slow || !fast || *slow <= 0 || *fast <= 0) continue;
    const auto late = by_latency(initiator, measured)(from);
    const auto early = by_latency(initiator, measured)(to);
    const double first = late && early ? 1 / *late - 1 / *early : 0;
    return of_seconds(static_cast<double>(bytes.value) * (1 / *slow - 1 / *fast) + first);
  }
  return std::nullopt;
}

void weigh(const Machine& machine, const Extent& extent, std::optional<NodeId> initiator,
           CacheExplanation& all) {
  const Node* const from = machine.find(extent.object->node());
  const Node* const to = all.node ? machine.find(*all.node) : nullptr;
  if (from == nullptr || to == nullptr) return;
  all.copy_time = copy_time(machine, from->id, to->id, extent.length);
  all.saved_per_use =
      from->byte_addressable() ? difference(*from, *to, extent.length, initiator) : all.copy_time;
  if (!all.copy_time || !all.saved_per_use || all.saved_per_use->count() <= 0) return;
  const double uses = seconds(*all.copy_time) / seconds(*all.saved_per_use);
  all.uses_to_pay = static_cast<std::uint64_t>(std::ceil(std::min(uses, 1e18)));
}

std::string name_of(const Machine& machine, NodeId id) {
  const Node* const node = machine.find(id);
  return fmt::format("node {} ({})", raw(id), node == nullptr ? "?" : to_string(node->kind));
}

std::string text_of(const Machine& machine, const CacheExplanation& all) {
  std::string text = "not cached";
  if (all.state != BlockState::absent) {
    text = fmt::format("{} {}{}", all.state == BlockState::ready ? "cached on" : "being copied to",
                       name_of(machine, *all.node), all.dirty ? ", newer than its source" : "");
  } else if (all.refusal) {
    text += ": " + all.refusal->message;
  }
  if (all.planned) text += "; next planned use ";
  if (all.planned) text += all.next_use ? "in " + to_string(*all.next_use) : "at an unknown time";
  if (!all.node || (all.state == BlockState::ready && !all.copy_time)) return text;
  text += all.state == BlockState::absent ? "; a copy to " + name_of(machine, *all.node) : "; copy";
  text += all.copy_time ? " takes " + to_string(*all.copy_time) : " takes an unknown time";
  if (all.uses_to_pay) {
    text +=
        fmt::format(", pays from {} use{} on", *all.uses_to_pay, *all.uses_to_pay == 1 ? "" : "s");
  } else if (all.saved_per_use && all.saved_per_use->count() <= 0) {
    text += ", never pays: uses of it are not shorter";
  } else {
    text += "; measure a profile to see when it pays";
  }
  return text;
}

}  // namespace

// Reads the shards of a cache, each under its lock.
class CacheExplainer {
 public:
  CacheExplainer(const CacheShards& shards, const Extent& extent, std::optional<NodeId> initiator)
      : shards_(shards), extent_(extent), initiator_(initiator) {}

  Result<CacheExplanation> run();

 private:
  void find(const CacheCore& core);
  void choose(const CacheCore& core);
  std::optional<Error> refusal(const ShardState& state, std::uint16_t number) const;

  const CacheShards& shards_;
  const Extent& extent_;
  const std::optional<NodeId> initiator_;
  CacheExplanation all_;
};

Result<CacheExplanation> CacheExplainer::run() {
  const Machine& machine = shards_.mover_.machine();
  HEADRACE_TRY_STATUS(shards_.cores_[0]->origin().check(kTheCache));
  if (!extent_.valid() || extent_.length.value == 0) {
    return fail(ErrorCode::invalid, "no bytes of an object to explain; check offset and length");
  }
  for (const auto& core : shards_.cores_) find(*core);
  if (all_.state == BlockState::absent) choose(shards_.of(extent_));
  weigh(machine, extent_, initiator_, all_);
  all_.text = text_of(machine, all_);
  return std::move(all_);
}

// A block of the shard that covers the extent, and the next use by the shard's plans.
void CacheExplainer::find(const CacheCore& core) {
  const ShardState& state = core.state_;
  const Range range = range_of(extent_);
  const MutexLock lock(state.mutex);
  const CacheEntry* const entry = state.hits.find(range);
  if (entry != nullptr && all_.state != BlockState::ready) {
    all_.state = entry->now();
    all_.dirty = entry->dirty != 0;
    all_.node = core.node_of(*entry);
  }
  bool paced = false;
  const auto next = state.plans.next_use(range, &paced);
  all_.planned = all_.planned || next;
  if (paced && (!all_.next_use || *next < *all_.next_use)) all_.next_use = next;
}

// The node on which an access would make a copy, or why on none.
void CacheExplainer::choose(const CacheCore& core) {
  Targets targets(core.state_.destinations, extent_, initiator_);
  if (!targets.first()) {
    all_.refusal = targets.first().error();
    return;
  }
  for (std::uint16_t number = targets.again();; number = targets.next()) {
    all_.refusal = refusal(core.state_, number);
    if (!all_.refusal) all_.node = core.state_.options.budgets[number].first;
    if (!all_.refusal || !targets.more()) return;
  }
}

std::optional<Error> CacheExplainer::refusal(const ShardState& state, std::uint16_t number) const {
  const MutexLock lock(state.mutex);
  const Space::Node& node = state.space.nodes()[number];
  if (node.lost) return node.grow_error;
  if (extent_.length.value <= node.budget && !state.space.was_refused(node, extent_)) {
    return std::nullopt;
  }
  return without_space(state.parts, node.id, extent_.length, Bytes{node.budget});
}

Result<CacheExplanation> explain(const CacheShards& shards, const Extent& extent,
                                 std::optional<NodeId> initiator) {
  return CacheExplainer(shards, extent, initiator).run();
}

}  // namespace headrace
