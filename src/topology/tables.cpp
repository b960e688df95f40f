// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>

#include "topology/topology.h"

namespace headrace {
namespace {

thread_local const MachineTables* current = nullptr;
thread_local std::uint64_t searched = 0;

}  // namespace

MachineTables::MachineTables(const Machine& machine)
    : machine_(machine), before_(current), reach_(headrace::socket_reach(machine)) {
  for (const CacheLevel& cache : machine.caches) {
    for (const unsigned number : cache.cpus) {
      Cpu& cpu = cpus_[number];
      if (cache.level == 1) cpu.first_levels.push_back(&cache);
      if (cpu.last_level == nullptr || cache.level > cpu.last_level->level) {
        cpu.last_level = &cache;
      }
    }
  }
  current = this;
}

MachineTables::~MachineTables() { current = before_; }

const MachineTables* MachineTables::of(const Machine& machine) {
  if (current != nullptr && &current->machine_ == &machine) return current;
  ++searched;
  return nullptr;
}

std::uint64_t MachineTables::searches() { return searched; }

const CacheLevel* MachineTables::last_level_cache(unsigned cpu) const {
  const auto found = cpus_.find(cpu);
  return found == cpus_.end() ? nullptr : found->second.last_level;
}

std::span<const CacheLevel* const> MachineTables::first_level_caches(unsigned cpu) const {
  const auto found = cpus_.find(cpu);
  if (found == cpus_.end()) return {};
  return found->second.first_levels;
}

unsigned socket_reach(const Machine& machine) {
  if (const auto* tables = MachineTables::of(machine)) return tables->socket_reach();
  std::set<unsigned> values;
  for (const Node& node : machine.nodes) {
    for (const auto& [id, value] : node.distances) values.insert(value);
  }
  unsigned reach = values.empty() ? 0 : *values.begin();
  unsigned widest = 0;
  unsigned previous = reach;
  for (const unsigned value : values) {
    if (value - previous > widest) widest = value - previous, reach = previous;
    previous = value;
  }
  return reach;
}

std::vector<const CacheLevel*> first_level_caches(const Machine& machine, unsigned cpu) {
  if (const auto* tables = MachineTables::of(machine)) {
    const auto known = tables->first_level_caches(cpu);
    return {known.begin(), known.end()};
  }
  std::vector<const CacheLevel*> caches;
  for (const CacheLevel& cache : machine.caches) {
    if (cache.level == 1 && std::ranges::binary_search(cache.cpus, cpu)) caches.push_back(&cache);
  }
  return caches;
}

}  // namespace headrace
