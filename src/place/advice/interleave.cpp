// SPDX-License-Identifier: Apache-2.0
// Advice from a profile: finds the curves, computes the load, and predicts each spread.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/fail.h"
#include "place/advice/curves.h"
#include "place/advice/tiers.h"

namespace headrace {
namespace {

constexpr std::string_view kHowToMeasure = "headrace measure loaded --out profile.json";

using Observer = std::pair<NodeId, std::size_t>;

std::string names_of(std::span<const Observer> observers) {
  std::string names;
  for (const auto& [node, count] : observers) {
    names += (names.empty() ? "" : ", ") + std::to_string(raw(node));
  }
  return names;
}

Unexpected no_such_cpus(std::span<const Observer> observers) {
  return fail(ErrorCode::absent,
              "rows name CPUs of node {}, which the machine of this profile lacks; measure anew: "
              "{}",
              names_of(observers), kHowToMeasure);
}

Result<NodeId> cpu_node_of(const Profile& profile, const InterleaveRequest& request) {
  const auto seen = observers(profile);
  if (seen.empty()) {
    return fail(ErrorCode::absent,
                "{} has no rows of the experiment loaded, which the advice rests on; measure them: "
                "{}",
                profile.machine.name, kHowToMeasure);
  }
  if (request.cpu_node) {
    const auto found = std::ranges::find(seen, *request.cpu_node, &Observer::first);
    if (found == seen.end()) {
      return fail(ErrorCode::absent,
                  "nothing was measured from CPUs of node {}; there are curves from node {}",
                  raw(*request.cpu_node), names_of(seen));
    }
    if (profile.machine.find(found->first) == nullptr) return no_such_cpus(std::span(&*found, 1));
    return found->first;
  }
  std::vector<Observer> known, with_cpus;
  for (const Observer& each : seen) {
    const Node* node = profile.machine.find(each.first);
    if (node != nullptr) known.push_back(each);
    if (node != nullptr && !node->cpus.empty()) with_cpus.push_back(each);
  }
  if (known.empty()) return no_such_cpus(seen);
  return std::ranges::max_element(with_cpus.empty() ? known : with_cpus, {}, &Observer::second)
      ->first;
}

// The share of the data that a node can hold.
Result<double> most_share_of(const Node& node, const InterleaveRequest& request) {
  if (!request.data) return 1.0;
  const auto free = request.free.find(node.id);
  const auto room = free != request.free.end() ? std::optional(free->second) : node.capacity;
  if (!room) {
    return fail(ErrorCode::absent, "what node {} holds is not known; say what is free there",
                raw(node.id));
  }
  return std::min(1.0, static_cast<double>(room->value) / static_cast<double>(request.data->value));
}

Status check(const Profile& profile, const InterleaveRequest& request) {
  if (request.demand && request.lines) {
    return fail(ErrorCode::invalid, "a demand or lines in flight (threads); give one of them");
  }
  if (request.data && request.data->value == 0) {
    return fail(ErrorCode::invalid, "a data set of 0 bytes needs no advice; give its size");
  }
  for (const auto& [node, bytes] : request.free) {
    if (profile.machine.find(node) == nullptr) {
      return fail(ErrorCode::absent, "no node {} on {}", raw(node), profile.machine.name);
    }
  }
  return {};
}

// The memories that lack the mix, with their mixes.
std::string lacking(std::span<const LeftOut> memories) {
  std::string told;
  for (const LeftOut& each : memories) {
    told += fmt::format("{}node {} has {}", told.empty() ? "" : "; ", raw(each.node), each.mixes);
  }
  return told;
}

// Curves of the machine's memories, by idle latency.
Result<MemoryCurves> usable(const Profile& profile, NodeId cpu_node, const std::string& mix) {
  HEADRACE_TRY(MemoryCurves curves, memory_curves(profile, cpu_node, mix));
  const auto is_memory = [&](NodeId id) {
    const Node* node = profile.machine.find(id);
    return node != nullptr && node->byte_addressable();
  };
  std::erase_if(curves.found, [&](const auto& each) { return !is_memory(each.node); });
  std::erase_if(curves.left_out, [&](const auto& each) { return !is_memory(each.node); });
  if (curves.found.size() < 2 && !curves.left_out.empty()) {
    return fail(ErrorCode::absent,
                "a spread takes two memories measured at the mix {}, or at mixes on both its "
                "sides, and {}; measure it: {}",
                mix, lacking(curves.left_out), kHowToMeasure);
  }
  if (curves.found.size() < 2) {
    return fail(ErrorCode::absent,
                "from CPUs of node {} only {} memory of this machine was measured under load, and "
                "a spread takes two; measure the others: {}",
                raw(cpu_node), curves.found.size(), kHowToMeasure);
  }
  std::ranges::stable_sort(curves.found, {},
                           [](const MemoryCurve& each) { return each.curve.idle_ns(); });
  return curves;
}

// Converts the program's load to memory traffic. Write-backs of the program's stores are traffic
// too. A line read for a store is also written once, so lines in flight grow by the same factor as
// bytes.
Result<Load> load_of(const Machine& machine, const InterleaveRequest& request,
                     const InterleaveAdvice& advice) {
  const double bus = advice.traffic.bus;
  if (request.demand) {
    HEADRACE_TRY_STATUS(check_load({.demand = request.demand->value}));
    return Load{.demand = request.demand->value * bus};
  }
  if (request.lines) {
    HEADRACE_TRY_STATUS(check_load({.lines = request.lines}));
    return Load{.lines = *request.lines * bus};
  }
  const std::size_t cpus = machine.find(advice.cpu_node)->cpus.size();
  if (cpus == 0) {
    return fail(ErrorCode::absent, "node {} has no CPUs known; say how much is asked",
                raw(advice.cpu_node));
  }
  return Load{.lines = static_cast<double>(cpus) * kLinesPerThread * bus};
}

// The check of best_spread, with a message in the program's bytes.
Status check_demand(std::span<const Tier> tiers, const InterleaveAdvice& advice) {
  HEADRACE_TRY_STATUS(check_load(tiers, advice.load));
  const double most = most_traffic(tiers);
  if (!advice.load.demand || *advice.load.demand <= most) return {};
  std::string each;
  for (const Tier& tier : tiers) {
    each += fmt::format("{}node {} {}", each.empty() ? "" : ", ", raw(tier.node),
                        to_string(BytesPerSecond{tier.curve.best() / advice.traffic.bus}));
  }
  return fail(ErrorCode::exhausted,
              "no spread gives {} of this mix: at most {} ({}); ask for less, or use more memories",
              to_string(BytesPerSecond{*advice.load.demand / advice.traffic.bus}),
              to_string(BytesPerSecond{most / advice.traffic.bus}), each);
}

void warn(const Profile& profile, const MemoryCurves& curves, InterleaveAdvice& advice) {
  std::set<NodeId> measured;
  for (const MemoryCurve& each : curves.found) measured.insert(each.node);
  for (const LeftOut& each : curves.left_out) measured.insert(each.node);
  std::vector<std::string> missing;
  for (const Node& node : profile.machine.nodes) {
    if (!node.byte_addressable() || measured.contains(node.id)) continue;
    missing.push_back(std::to_string(raw(node.id)));
  }
  auto& said = advice.warnings;
  said.emplace_back(
      "each memory was loaded alone: what they take from each other when loaded together is not "
      "in these figures");
  said.push_back(fmt::format(
      "the load is of the CPUs of node {} alone: other CPUs that use the same memories leave less",
      raw(advice.cpu_node)));
  if (!missing.empty()) {
    said.push_back(
        fmt::format("not considered, as nobody measured them under load from there: "
                    "node {}",
                    fmt::join(missing, ", ")));
  }
  if (!curves.left_out.empty()) {
    said.push_back(
        fmt::format("left out for want of the mix {}: {}", advice.mix, lacking(curves.left_out)));
  }
  for (const MemoryCurve& each : curves.found) {
    if (each.fitted) {
      said.push_back(fmt::format("node {}: drawn from a fit, rough at the knee", raw(each.node)));
    }
    if (each.noisy) {
      said.push_back(fmt::format("node {}: measured while something else ran", raw(each.node)));
    }
    if (each.few) {
      said.push_back(
          fmt::format("node {}: points of one or two mappings, whose spread is not known; take "
                      "headrace measure loaded --full",
                      raw(each.node)));
    }
    if (!each.between.empty()) {
      said.push_back(
          fmt::format("node {}: interpolated between the mixes {}; on published curves "
                      "that is off by up to 3 %, more at the knee",
                      raw(each.node), each.between));
    }
  }
}

void warn_of_excess(const Weights& weights, const InterleaveRequest& request,
                    InterleaveAdvice& advice) {
  for (std::size_t i = 0; i < advice.nodes.size(); ++i) {
    const AdvisedNode& node = advice.nodes[i];
    const double excess = weights.spread.share[i] - node.most_share;
    if (!request.data || excess <= 1e-8) continue;
    const double gib = excess * static_cast<double>(request.data->value) / (1 << 30);
    advice.warnings.push_back(
        fmt::format("these weights put {:.3g} GiB more on node {} than is free there: no whole "
                    "numbers fit, as the memories together hold hardly more than the data",
                    gib, raw(node.node)));
  }
}

// A share for the tiers of the first one's kind and the rest for the other tiers, evenly within
// each group. If all are of one kind: the first against the rest.
std::vector<double> divided(std::span<const AdvisedNode> nodes, double first) {
  const auto alike = [&](const AdvisedNode& each) { return each.kind == nodes.front().kind; };
  auto count = static_cast<std::size_t>(std::ranges::count_if(nodes, alike));
  const bool one_kind = count == nodes.size();
  if (one_kind) count = 1;
  std::vector<double> share;
  for (const AdvisedNode& each : nodes) {
    const bool in = one_kind ? &each == &nodes.front() : alike(each);
    share.push_back(in ? first / static_cast<double>(count)
                       : (1 - first) / static_cast<double>(nodes.size() - count));
  }
  return share;
}

NamedSpread named(std::string name, Result<Spread> spread) {
  if (!spread) return {std::move(name), std::nullopt, spread.error().message};
  return {std::move(name), *std::move(spread), {}};
}

void compare_others(std::span<const Tier> tiers, InterleaveAdvice& advice) {
  const auto add = [&](std::string name, std::span<const double> share) {
    advice.spreads.push_back(named(std::move(name), predict(tiers, share, advice.load)));
  };
  for (std::size_t i = 0; i < tiers.size(); ++i) {
    std::vector<double> alone(tiers.size());
    alone[i] = 1;
    add(fmt::format("node {} only", raw(tiers[i].node)), alone);
  }
  for (const auto& [name, first] : {std::pair{"3:1", 0.75}, {"1:1", 0.5}, {"1:3", 0.25}}) {
    add(name, divided(advice.nodes, first));
  }
  std::vector<double> bests;
  for (const Tier& tier : tiers) bests.push_back(tier.curve.best());
  add("by bandwidth", shares_of(bests));
  advice.spreads.push_back(named("equal latency", equal_latency(tiers, advice.load)));
}

}  // namespace

Result<std::vector<Tier>> loaded_tiers(const Profile& profile, const InterleaveRequest& request) {
  HEADRACE_TRY_STATUS(check(profile, request));
  HEADRACE_TRY_STATUS(mix_traffic(request.mix));
  HEADRACE_TRY(const NodeId cpu_node, cpu_node_of(profile, request));
  HEADRACE_TRY(const MemoryCurves curves, usable(profile, cpu_node, request.mix));
  std::vector<Tier> tiers;
  for (const MemoryCurve& each : curves.found) {
    HEADRACE_TRY(const double most, most_share_of(*profile.machine.find(each.node), request));
    tiers.push_back({each.node, each.curve, most});
  }
  return tiers;
}

Result<InterleaveAdvice> advise_interleave(const Profile& profile,
                                           const InterleaveRequest& request) {
  HEADRACE_TRY_STATUS(check(profile, request));
  InterleaveAdvice advice{.mix = request.mix};
  HEADRACE_TRY(advice.traffic, mix_traffic(request.mix));
  HEADRACE_TRY(advice.cpu_node, cpu_node_of(profile, request));
  HEADRACE_TRY(const MemoryCurves curves, usable(profile, advice.cpu_node, request.mix));
  HEADRACE_TRY(advice.load, load_of(profile.machine, request, advice));
  std::vector<Tier> tiers;
  for (const MemoryCurve& each : curves.found) {
    const Node& node = *profile.machine.find(each.node);
    HEADRACE_TRY(const double most, most_share_of(node, request));
    tiers.push_back({each.node, each.curve, most});
    advice.nodes.push_back({.node = each.node,
                            .kind = node.kind,
                            .idle_ns = each.curve.idle_ns(),
                            .best = each.curve.best(),
                            .most_share = most,
                            .basis = each.basis,
                            .source = each.source});
  }
  HEADRACE_TRY_STATUS(check_demand(tiers, advice));
  HEADRACE_TRY(Spread best, best_spread(tiers, advice.load));
  const Weights weights = integer_weights(tiers, best, advice.load);
  for (std::size_t i = 0; i < tiers.size(); ++i) {
    advice.nodes[i].share = best.share[i];
    advice.nodes[i].weight = weights.weight[i];
  }
  advice.weight_loss = weights.loss;
  advice.share_error = weights.share_error;
  advice.spreads.push_back({"best", std::move(best), {}});
  advice.spreads.push_back({"weights", weights.spread, {}});
  compare_others(tiers, advice);
  advice.flip = demand_flip(tiers);
  warn_of_excess(weights, request, advice);
  warn(profile, curves, advice);
  return advice;
}

}  // namespace headrace
