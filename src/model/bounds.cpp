// SPDX-License-Identifier: Apache-2.0
#include "model/bounds.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

#include "core/check.h"
#include "topology/topology.h"

namespace headrace {
namespace {

Evidence evidence_of(bool measured, const std::string& source) {
  return {.basis = measured ? ConstantBasis::measured : ConstantBasis::rated, .source = source};
}

const AccessAttributes* access_of(const Node& node, NodeId initiator) {
  const auto found = std::ranges::find(node.access, initiator, &AccessAttributes::initiator);
  return found == node.access.end() ? nullptr : &*found;
}

// Bandwidth for reads alone and for writes alone; nothing without either.
std::optional<Curve> bandwidth_of(const AccessAttributes& access) {
  const auto& [read, write] = std::pair(access.read_bandwidth, access.write_bandwidth);
  const double reads = read ? read->value : write ? write->value : 0;
  const double writes = write ? write->value : reads;
  if (reads <= 0 || writes <= 0) return std::nullopt;
  return Curve{{{0, reads}, {1, writes}}};
}

// Adds the bandwidth from each initiator to a node, and the best of them for all together.
void add_node(const Node& node, std::vector<Ceiling>& ceilings) {
  std::optional<Ceiling> best;
  for (const AccessAttributes& access : node.access) {
    const auto bandwidth = bandwidth_of(access);
    if (!bandwidth) continue;
    Ceiling ceiling{
        .name = fmt::format("node {} from node {}", raw(node.id), raw(access.initiator)),
        .kind = CeilingKind::fabric,
        .paths = {{.from = {access.initiator}, .to = {node.id}}},
        .bandwidth = *bandwidth,
        .evidence = evidence_of(access.measured, access.source)};
    if (!best || bandwidth->points > best->bandwidth.points) {
      best = ceiling;
      best->name = fmt::format("memory of node {}", raw(node.id));
      best->kind = CeilingKind::controller;
      best->paths = {{.to = {node.id}}};
    }
    ceilings.push_back(std::move(ceiling));
  }
  if (best) ceilings.push_back(*std::move(best));
}

// The accesses that cross a link. Data of a write goes the way of the access, data of a read comes
// back.
struct LinkPaths {
  std::vector<CrossingPath> forward;   // whose data goes from `a` to `b`
  std::vector<CrossingPath> backward;  // from `b` to `a`
};

std::vector<LinkPaths> link_paths(const Machine& machine) {
  std::vector<LinkPaths> found(machine.links.size());
  for (const Node& from : machine.nodes) {
    for (const Node& to : machine.nodes) {
      for (const auto& [link, forward] : way_between(machine, from.id, to.id)) {
        CrossingPath path{.from = {from.id}, .to = {to.id}, .counts = Counts::writes};
        LinkPaths& paths = found[link];
        (forward ? paths.forward : paths.backward).push_back(path);
        path.counts = Counts::reads;
        (forward ? paths.backward : paths.forward).push_back(path);
      }
    }
  }
  return found;
}

void add_links(const Machine& machine, std::vector<Ceiling>& ceilings) {
  const std::vector<LinkPaths> paths = link_paths(machine);
  for (std::size_t i = 0; i < machine.links.size(); ++i) {
    const Link& link = machine.links[i];
    const auto add = [&](std::string_view which, std::optional<BytesPerSecond> rate,
                         const std::string& source, std::vector<CrossingPath> crossing) {
      if (!rate || crossing.empty()) return;
      ceilings.push_back({.name = fmt::format("{} {}-{}{}", to_string(link.kind),
                                              raw(link.a.front()), raw(link.b.front()), which),
                          .kind = CeilingKind::link,
                          .paths = std::move(crossing),
                          .bandwidth = Curve{{{0, rate->value}}},
                          .evidence = evidence_of(false, source)});
    };
    add(", forward", link.each_way, link.each_way_source, paths[i].forward);
    add(", backward", link.each_way, link.each_way_source, paths[i].backward);
    std::vector<CrossingPath> both = paths[i].forward;
    both.insert(both.end(), paths[i].backward.begin(), paths[i].backward.end());
    add(", both ways", link.both_ways, link.both_ways_source, std::move(both));
  }
}

void add_engines(const Machine& machine, std::vector<Ceiling>& ceilings) {
  for (const Engine& engine : machine.engines) {
    for (const Node& from : machine.nodes) {
      const CopyRate* best = nullptr;
      for (const CopyRate& rate : machine.copy_rates) {
        if (rate.engine != engine.id || rate.from != from.id) continue;
        if (best == nullptr || rate.bandwidth > best->bandwidth) best = &rate;
      }
      if (best == nullptr) continue;
      ceilings.push_back(
          {.name = fmt::format("{} from node {}", engine.name, raw(from.id)),
           .kind = CeilingKind::engine,
           .paths = {{.engines = {engine.id}, .to = {from.id}, .counts = Counts::reads}},
           .bandwidth = Curve{{{0, best->bandwidth.value}}},
           .evidence = evidence_of(true, best->source)});
    }
  }
}

// Latencies of usual memory, loads without a queue: DDR5 97 to 113 ns and HBM 138 ns on Xeon Max
// and Sapphire Rapids, CXL memory 251 ns there (EuroSys'24, DRAMHiT's page of the Xeon Max 9462), a
// GPU's memory over PCIe about 1 us, an SSD's block 80 us.
double usual_latency_ns(NodeKind kind) {
  constexpr std::array kLatency{110.0, 138.0, 250.0, 1000.0, 80000.0};
  static_assert(kLatency.size() == static_cast<std::size_t>(NodeKind::storage) + 1);
  return kLatency[static_cast<std::size_t>(kind)];
}

// Added by another socket: DDR 111 and 239 ns, HBM 138 and 243 ns (DRAMHiT, the same page).
constexpr double kOtherSocketNs = 115;

}  // namespace

MachineModel bounds_of(const Machine& machine) {
  MachineModel model{.bound = true};
  for (const Node& node : machine.nodes) add_node(node, model.ceilings);
  add_links(machine, model.ceilings);
  add_engines(machine, model.ceilings);
  return model;
}

IdleLatency latency_of(const Machine& machine, NodeId initiator, NodeId node) {
  const Node* found = machine.find(node);
  const Node* home = machine.find(initiator);
  CHECK(found != nullptr && home != nullptr);
  IdleLatency latency{.from = {initiator}, .to = {node}};
  const AccessAttributes* access = access_of(*found, initiator);
  if (access != nullptr && access->read_latency && access->read_latency->count() > 0) {
    latency.read_ns = static_cast<double>(access->read_latency->count());
    if (access->write_latency) {
      latency.write_ns = static_cast<double>(access->write_latency->count());
    }
    latency.evidence = evidence_of(access->measured, access->source);
    return latency;
  }
  latency.read_ns = usual_latency_ns(found->kind);
  std::string source = fmt::format("usual for {}", to_string(found->kind));
  if (found->socket && home->socket && *found->socket != *home->socket) {
    latency.read_ns += kOtherSocketNs;
    source += " of another socket";
  }
  latency.evidence = {.basis = ConstantBasis::assumed, .source = source};
  return latency;
}

}  // namespace headrace
