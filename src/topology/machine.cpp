// SPDX-License-Identifier: Apache-2.0
#include "headrace/machine.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <utility>

#include "core/check.h"
#include "core/fail.h"
#include "topology/topology.h"

namespace headrace {
namespace {

bool is_sorted_member(const CpuSet& cpus, unsigned cpu) {
  // Plans call this a million times. Most sets end before the CPU or begin after it.
  if (cpus.empty() || cpu < cpus.front() || cpus.back() < cpu) return false;
  return std::ranges::binary_search(cpus, cpu);
}

}  // namespace

std::string_view to_string(NodeKind kind) { return kNodeKinds.of(kind); }

std::string_view to_string(EngineKind kind) { return kEngineKinds.of(kind); }

std::string_view to_string(LinkKind kind) { return kLinkKinds.of(kind); }

std::string_view to_string(GpuParadigm paradigm) { return kGpuParadigms.of(paradigm); }

Result<NodeKind> parse_node_kind(std::string_view text) { return kNodeKinds.parse(text); }

const Node* Machine::find(NodeId id) const {
  const auto found = std::ranges::find(nodes, id, &Node::id);
  return found == nodes.end() ? nullptr : &*found;
}

const Engine* Machine::find(EngineId id) const {
  return raw(id) < engines.size() ? &engines[raw(id)] : nullptr;
}

Result<const Node*> Machine::node(NodeId id) const {
  if (const Node* found = find(id)) return found;
  std::vector<std::uint32_t> ids;
  for (const Node& each : nodes) ids.push_back(raw(each.id));
  return fail(ErrorCode::absent, "no node {} on {}; its nodes are {}", raw(id),
              name.empty() ? "this machine" : name, fmt::join(ids, ", "));
}

std::vector<const Node*> Machine::of_kind(NodeKind kind) const {
  std::vector<const Node*> found;
  for (const Node& each : nodes) {
    if (each.kind == kind) found.push_back(&each);
  }
  std::ranges::sort(found, {}, &Node::id);
  return found;
}

const Node* Machine::node_of_cpu(unsigned cpu) const {
  const auto found = std::ranges::find_if(
      nodes, [&](const Node& each) { return is_sorted_member(each.cpus, cpu); });
  return found == nodes.end() ? nullptr : &*found;
}

const CopyRate* Machine::rate(EngineId engine, NodeId from, NodeId to) const {
  const auto found = std::ranges::find_if(copy_rates, [&](const CopyRate& each) {
    return each.engine == engine && each.from == from && each.to == to;
  });
  return found == copy_rates.end() ? nullptr : &*found;
}

bool can_copy(const Engine& engine, const Node& from, const Node& to) {
  const bool from_memory = from.byte_addressable();
  const bool to_memory = to.byte_addressable();
  const bool from_home = from.id == engine.home;
  const bool to_home = to.id == engine.home;
  switch (engine.kind) {
    case EngineKind::cpu:
    case EngineKind::dsa: return from_memory && to_memory;
    case EngineKind::ssd: return (from_home && to_memory) || (to_home && from_memory);
    case EngineKind::gpu: {
      const auto reaches = [](const Node& home, const Node& other) {
        return other.byte_addressable() || other.kind == NodeKind::gpu || !home.byte_addressable();
      };
      return (from_home && reaches(from, to)) || (to_home && reaches(to, from));
    }
    case EngineKind::migrate: return false;
  }
  CHECK(false);
  return false;
}

std::optional<PackageHbm> package_hbm(std::string_view cpu_model) {
  std::string lower(cpu_model);
  std::ranges::transform(lower, lower.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  // "Intel(R) Xeon(R) CPU Max 9480"; "Intel(R) Xeon Phi(TM) CPU 7250" (MCDRAM); "AMD Instinct
  // MI300A Accelerator"; MI300C, "AMD EPYC 9V64H 88-Core Processor".
  constexpr std::pair<std::string_view, PackageHbm> kModels[] = {{"xeon(r) cpu max", {64_GiB}},
                                                                 {"xeon phi", {16_GiB}},
                                                                 {"mi300a", {128_GiB, true}},
                                                                 {"9v64h", {128_GiB, true}},
                                                                 {"a64fx", {32_GiB, true}}};
  for (const auto& [words, hbm] : kModels) {
    if (lower.contains(words)) return hbm;
  }
  return std::nullopt;
}

std::string cache_mode(const Machine& machine) {
  std::vector<unsigned> nodes;
  Bytes sum;
  for (const Node& node : machine.nodes) {
    if (!node.side_cache) continue;
    nodes.push_back(raw(node.id));
    sum += node.side_cache->size;
  }
  if (nodes.empty()) return "";
  const auto cpu = machine.provenance.find("cpu");
  const bool known = cpu != machine.provenance.end() && package_hbm(cpu->second).has_value();
  // A Xeon Phi can have parts of its MCDRAM in each mode.
  const bool part = !machine.of_kind(NodeKind::hbm).empty();
  return fmt::format(
      "{}{} is in cache mode: {} before node{} {}, where nothing can be allocated; flat mode is "
      "set "
      "in the BIOS (Memory Hierarchy: Flat)",
      part ? "part of " : "", known ? "HBM" : "fast memory", to_string(sum),
      nodes.size() == 1 ? "" : "s", to_string(nodes));
}

const CacheLevel* last_level_cache(const Machine& machine, unsigned cpu) {
  if (const auto* tables = MachineTables::of(machine)) return tables->last_level_cache(cpu);
  const CacheLevel* last = nullptr;
  for (const CacheLevel& cache : machine.caches) {
    if (!is_sorted_member(cache.cpus, cpu)) continue;
    if (last == nullptr || cache.level > last->level) last = &cache;
  }
  return last;
}

bool is_virtual(const Machine& machine) {
  const auto under = machine.provenance.find("hypervisor");
  return under != machine.provenance.end() && under->second == "yes";
}

bool is_believed(const Machine& machine, const CacheLevel& cache) {
  constexpr Bytes kMostPerCpu = 64_MiB;
  return !is_virtual(machine) || cache.size <= kMostPerCpu * cache.cpus.size();
}

bool caches_believed(const Machine& machine, const CpuSet& cpus) {
  return std::ranges::all_of(cpus, [&](unsigned cpu) {
    const CacheLevel* cache = last_level_cache(machine, cpu);
    return cache == nullptr || is_believed(machine, *cache);
  });
}

Bytes cache_to_pass(const Machine& machine, const CpuSet& cpus) {
  constexpr Bytes kUnknown = 32_MiB, kDoubted = 128_MiB;
  std::set<const CacheLevel*> caches;
  for (const unsigned cpu : cpus) caches.insert(last_level_cache(machine, cpu));
  Bytes sum;
  for (const CacheLevel* cache : caches) {
    sum += cache == nullptr ? kUnknown : is_believed(machine, *cache) ? cache->size : kDoubted;
  }
  return sum;
}

}  // namespace headrace
