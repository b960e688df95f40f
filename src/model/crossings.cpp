// SPDX-License-Identifier: Apache-2.0
#include "model/crossings.h"

#include <algorithm>
#include <map>

namespace headrace {
namespace {

bool among(const auto& list, const auto& value) {
  return list.empty() || std::ranges::find(list, value) != list.end();
}

struct Traffic {
  double reads = 0;
  double writes = 0;
};

// Traffic between initiator and node, per byte.
Traffic demand(AccessKind kind) {
  switch (kind) {
    case AccessKind::read: return {.reads = 1};
    case AccessKind::write: return {.writes = 1};
    case AccessKind::store: break;
  }
  return {.reads = 1, .writes = 1};
}

// Traffic at the cache, or at the memory behind it, per byte. The line of a store is still in the
// cache when it is written back.
Traffic behind(AccessKind kind, bool cache, double hits, double dirty) {
  Traffic sum;
  const auto add = [&](const SideCacheTraffic& each) {
    sum.reads += cache ? each.cache_reads : each.memory_reads;
    sum.writes += cache ? each.cache_writes : each.memory_writes;
  };
  if (kind != AccessKind::write) add(side_cache_reads(hits, dirty));
  if (kind == AccessKind::write) add(side_cache_writes(hits, dirty));
  if (kind == AccessKind::store) add(side_cache_writes(1, 0));
  return sum;
}

}  // namespace

Crossings::Crossings(const Machine& machine, const MachineModel& model)
    : machine_(machine), model_(model) {
  std::size_t numbers = 0;
  unsigned last_cpu = 0;
  std::vector<const CpuSet*> sets;
  for (const Ceiling& ceiling : model.ceilings) {
    auto& of_ceiling = path_number_.emplace_back();
    for (const CrossingPath& path : ceiling.paths) {
      of_ceiling.push_back(numbers);
      if (path.cpus.empty()) continue;
      ++numbers;
      sets.push_back(&path.cpus);
      last_cpu = std::max(last_cpu, path.cpus.back());
    }
  }
  membership_.emplace_back(numbers, false);
  std::map<std::vector<bool>, unsigned> groups{{membership_.front(), 0}};
  group_.assign(last_cpu + 1, 0);
  for (unsigned cpu = 0; cpu <= last_cpu; ++cpu) {
    std::vector<bool> in(numbers);
    for (std::size_t i = 0; i < numbers; ++i) {
      in[i] = std::ranges::binary_search(*sets[i], cpu);
    }
    const auto [found, added] = groups.try_emplace(in, static_cast<unsigned>(membership_.size()));
    if (added) membership_.push_back(std::move(in));
    group_[cpu] = found->second;
  }
}

unsigned Crossings::group(unsigned cpu) const { return cpu < group_.size() ? group_[cpu] : 0; }

bool Crossings::has_side_cache(NodeId node) const {
  const Node* found = machine_.find(node);
  return found != nullptr && found->side_cache.has_value();
}

std::vector<AccessCrossing> Crossings::of(const Initiator& initiator, const FlowAccess& access,
                                          double hits, double dirty) const {
  std::vector<AccessCrossing> found;
  found.reserve(8);  // more than most paths have
  const bool cached = has_side_cache(access.node);
  for (std::size_t c = 0; c < model_.ceilings.size(); ++c) {
    const Ceiling& ceiling = model_.ceilings[c];
    if (ceiling.side_cache && !cached) continue;
    bool reads = false;
    bool writes = false;
    for (std::size_t p = 0; p < ceiling.paths.size(); ++p) {
      const CrossingPath& path = ceiling.paths[p];
      if (!path.cpus.empty() &&
          (initiator.engine || !membership_[initiator.cpu_group][path_number_[c][p]])) {
        continue;
      }
      if (!path.engines.empty() && !(initiator.engine && among(path.engines, *initiator.engine))) {
        continue;
      }
      if (!among(path.from, initiator.node) || !among(path.to, access.node)) continue;
      reads = reads || path.counts != Counts::writes;
      writes = writes || path.counts != Counts::reads;
    }
    if (!reads && !writes) continue;
    const bool at_memory =
        ceiling.kind == CeilingKind::controller || ceiling.kind == CeilingKind::device;
    const Traffic traffic = at_memory && cached
                                ? behind(access.kind, ceiling.side_cache, hits, dirty)
                                : demand(access.kind);
    AccessCrossing crossing{.ceiling = c,
                            .reads = reads ? traffic.reads * access.bytes : 0,
                            .writes = writes ? traffic.writes * access.bytes : 0};
    const double bytes = crossing.reads + crossing.writes;
    if (access.request_bytes) {
      crossing.requests = bytes / *access.request_bytes * ceiling.request_bytes;
    }
    if (bytes > 0) found.push_back(crossing);
  }
  return found;
}

}  // namespace headrace
