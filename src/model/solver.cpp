// SPDX-License-Identifier: Apache-2.0
#include "model/solver.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "core/check.h"
#include "core/fail.h"
#include "core/text/printable.h"
#include "model/bounds.h"
#include "model/crossings.h"
#include "model/fixed_point.h"
#include "model/queue.h"

namespace headrace {
namespace {

// Open demand waits as long as this for its place, in ns: beyond any delay of a ceiling that is not
// overloaded, so it gets its cap, and of an overloaded one almost all.
constexpr double kOpenLatencyNs = 1e6;

// The end of an interval that is solved.
enum class End : std::uint8_t { low, value, high };

double at_end(double value, double uncertainty, End end) {
  if (end == End::value) return value;
  return value * (end == End::low ? 1 - uncertainty : 1 + uncertainty);
}

double at_end(const Estimate& estimate, End end) {
  if (end == End::value) return estimate.value;
  return end == End::low ? estimate.low : estimate.high;
}

// The classes of one flow: one per group of CPUs.
struct FlowClasses {
  std::size_t first = 0;
  std::size_t count = 0;
  double bytes = 0;                                    // of accesses, per byte of progress
  std::vector<double> idle_ns;                         // by access
  std::vector<std::vector<AccessCrossing>> crossings;  // by access, of the first class
};

struct Classes {
  std::vector<ThreadClass> threads;
  std::vector<FlowClasses> flows;
};

}  // namespace

struct Solver::Parts {
  Parts(const Machine& m, MachineModel read)
      : machine(m), model(std::move(read)), crossings(machine, model) {}

  const Machine machine;
  const MachineModel model;
  const Crossings crossings;

  Status check(const Flow& flow) const;
  Status check(const Flow& flow, const FlowAccess& access) const;
  IdleLatency latency(NodeId initiator, NodeId node, bool side_cache) const;
  double idle_ns(NodeId initiator, const FlowAccess& access, double hits, End end) const;
  // The share of a flow's threads on CPUs of each group.
  std::map<unsigned, double> groups(const Flow& flow) const;
  Result<Classes> classes(std::span<const Flow> flows, End end) const;
  std::vector<ScaledCeiling> ceilings(End end) const;
  Result<Solution> solve(std::span<const Flow> flows, End end) const;
  RateSystem system(const Classes& classes, End end) const {
    return RateSystem(classes.threads, ceilings(end));
  }
};

namespace {

Status positive(const Flow& flow, std::string_view what, double value) {
  if (std::isfinite(value) && value > 0) return {};
  return fail(ErrorCode::invalid, "flow '{}': {} is {}; it must be above 0", printable(flow.name),
              what, value);
}

Status share(const Flow& flow, std::string_view what, double value) {
  if (value >= 0 && value <= 1) return {};
  return fail(ErrorCode::invalid, "flow '{}': {} is {}; it must be from 0 to 1",
              printable(flow.name), what, value);
}

// The share of the bytes on its node that a flow writes.
double written_share(const Flow& flow, NodeId node) {
  double all = 0;
  double written = 0;
  for (const FlowAccess& access : flow.accesses) {
    if (access.node != node) continue;
    all += access.bytes;
    if (access.kind != AccessKind::read) written += access.bytes;
  }
  return all > 0 ? written / all : 0;
}

// Adds crossings of an access to a class, by ceiling.
void add(std::vector<ClassCrossing>& to, const std::vector<AccessCrossing>& crossings) {
  for (const AccessCrossing& each : crossings) {
    auto place = std::ranges::lower_bound(to, each.ceiling, {}, &ClassCrossing::ceiling);
    if (place == to.end() || place->ceiling != each.ceiling) {
      place = to.insert(place, ClassCrossing{.ceiling = each.ceiling});
    }
    place->reads += each.reads;
    place->writes += each.writes;
    place->weight += each.reads + each.writes + each.requests;
  }
}

}  // namespace

Status Solver::Parts::check(const Flow& flow, const FlowAccess& access) const {
  if (machine.find(access.node) == nullptr) {
    return fail(ErrorCode::invalid, "flow '{}': no node {}", printable(flow.name),
                raw(access.node));
  }
  HEADRACE_TRY_STATUS(positive(flow, "the bytes of an access", access.bytes));
  if (access.latency_ns) {
    HEADRACE_TRY_STATUS(positive(flow, "the latency of an access", *access.latency_ns));
  }
  if (access.request_bytes) {
    HEADRACE_TRY_STATUS(positive(flow, "the size of a request", *access.request_bytes));
  }
  if (access.side_cache_hits) {
    const auto& [value, low, high] = *access.side_cache_hits;
    for (const double each : {low, value, high}) {
      HEADRACE_TRY_STATUS(share(flow, "the share of hits", each));
    }
  }
  return share(flow, "the share of dirty lines", access.side_cache_dirty.value_or(0));
}

Status Solver::Parts::check(const Flow& flow) const {
  HEADRACE_TRY_STATUS(positive(flow, "the number of threads", flow.threads));
  if (flow.engine && machine.find(*flow.engine) == nullptr) {
    return fail(ErrorCode::invalid, "flow '{}': no engine {}", printable(flow.name),
                raw(*flow.engine));
  }
  const Node* initiator = machine.find(flow.initiator);
  if (!flow.engine && initiator == nullptr) {
    return fail(ErrorCode::invalid, "flow '{}': no node {}", printable(flow.name),
                raw(flow.initiator));
  }
  if (!flow.engine && initiator->cpus.empty()) {
    return fail(ErrorCode::invalid,
                "flow '{}': node {} has no CPUs; threads start from a node with CPUs",
                printable(flow.name), raw(flow.initiator));
  }
  for (const unsigned cpu : flow.cpus) {
    if (!flow.engine && std::ranges::binary_search(initiator->cpus, cpu)) continue;
    return fail(ErrorCode::invalid, "flow '{}': CPU {} is not one of its initiator",
                printable(flow.name), cpu);
  }
  if (flow.accesses.empty()) {
    return fail(ErrorCode::invalid, "flow '{}': has no accesses", printable(flow.name));
  }
  for (const FlowAccess& access : flow.accesses) HEADRACE_TRY_STATUS(check(flow, access));
  if (flow.in_flight_bytes) {
    HEADRACE_TRY_STATUS(positive(flow, "the bytes in flight", *flow.in_flight_bytes));
  } else if (!flow.cap_bytes_per_second) {
    return fail(ErrorCode::invalid, "flow '{}': has neither bytes in flight nor a cap",
                printable(flow.name));
  }
  if (flow.cap_bytes_per_second) {
    HEADRACE_TRY_STATUS(positive(flow, "the cap", *flow.cap_bytes_per_second));
  }
  if (flow.in_flight_uncertainty >= 0 && flow.in_flight_uncertainty < 1) return {};
  return fail(ErrorCode::invalid, "flow '{}': the uncertainty {} is not from 0 to below 1",
              printable(flow.name), flow.in_flight_uncertainty);
}

IdleLatency Solver::Parts::latency(NodeId initiator, NodeId node, bool side_cache) const {
  const auto among = [](const std::vector<NodeId>& list, NodeId id) {
    return list.empty() || std::ranges::find(list, id) != list.end();
  };
  for (const IdleLatency& each : model.latencies) {
    if (each.side_cache == side_cache && among(each.from, initiator) && among(each.to, node)) {
      return each;
    }
  }
  return latency_of(machine, initiator, node);
}

double Solver::Parts::idle_ns(NodeId initiator, const FlowAccess& access, double hits,
                              End end) const {
  if (access.latency_ns) return *access.latency_ns;
  // Latency is worst at the low end of rates.
  const End other = end == End::low ? End::high : end == End::high ? End::low : End::value;
  const auto of = [&](bool side_cache) {
    const IdleLatency found = latency(initiator, access.node, side_cache);
    const bool writes = access.kind == AccessKind::write;
    return at_end(writes ? found.write_ns.value_or(found.read_ns) : found.read_ns,
                  found.uncertainty, other);
  };
  if (!crossings.has_side_cache(access.node)) return of(false);
  return of(true) + (1 - hits) * of(false);
}

std::map<unsigned, double> Solver::Parts::groups(const Flow& flow) const {
  if (flow.engine) return {{0, 1.0}};
  const CpuSet& cpus = flow.cpus.empty() ? machine.find(flow.initiator)->cpus : flow.cpus;
  std::map<unsigned, double> found;
  for (const unsigned cpu : cpus) {
    found[crossings.group(cpu)] += 1 / static_cast<double>(cpus.size());
  }
  return found;
}

Result<Classes> Solver::Parts::classes(std::span<const Flow> flows, End end) const {
  Classes found;
  for (const Flow& flow : flows) {
    HEADRACE_TRY_STATUS(check(flow));
    FlowClasses& of_flow = found.flows.emplace_back();
    of_flow.first = found.threads.size();
    const NodeId initiator = flow.engine ? machine.find(*flow.engine)->home : flow.initiator;
    ThreadClass common{.cap = flow.cap_bytes_per_second ? *flow.cap_bytes_per_second * 1e-9
                                                        : std::numeric_limits<double>::infinity()};
    common.in_flight = flow.in_flight_bytes
                           ? at_end(*flow.in_flight_bytes, flow.in_flight_uncertainty, end)
                           : common.cap * kOpenLatencyNs;
    for (const auto& [group, part] : groups(flow)) {
      ThreadClass& each = found.threads.emplace_back(common);
      each.threads = flow.threads * part;
      const bool first = of_flow.count++ == 0;
      for (const FlowAccess& access : flow.accesses) {
        const double hits = access.side_cache_hits ? at_end(*access.side_cache_hits, end) : 1;
        const double dirty = access.side_cache_dirty.value_or(written_share(flow, access.node));
        const double idle = idle_ns(initiator, access, hits, end);
        auto crossed = crossings.of({.node = initiator, .engine = flow.engine, .cpu_group = group},
                                    access, hits, dirty);
        each.idle += access.bytes * idle;
        add(each.crossings, crossed);
        if (!first) continue;
        of_flow.bytes += access.bytes;
        of_flow.idle_ns.push_back(idle);
        of_flow.crossings.push_back(std::move(crossed));
      }
    }
  }
  return found;
}

std::vector<ScaledCeiling> Solver::Parts::ceilings(End end) const {
  std::vector<ScaledCeiling> found;
  for (const Ceiling& ceiling : model.ceilings) {
    found.push_back({.ceiling = &ceiling,
                     .bandwidth = at_end(1, ceiling.uncertainty, end),
                     .queue = end == End::low    ? kQueueScaleHigh
                              : end == End::high ? kQueueScaleLow
                                                 : 1});
  }
  return found;
}

namespace {

// The limit of a class: the one whose growth would help most.
Limit limit_of(const ThreadClass& of_class, double delay, const std::vector<double>& elasticity) {
  if (of_class.in_flight / delay > of_class.cap) return {.kind = Limit::Kind::cap, .elasticity = 1};
  const auto most = std::ranges::max_element(elasticity);
  const auto index = static_cast<std::size_t>(most - elasticity.begin());
  if (index + 1 == elasticity.size()) {
    return {.kind = Limit::Kind::lines_in_flight, .elasticity = *most};
  }
  return {.kind = Limit::Kind::ceiling, .ceiling = index, .elasticity = *most};
}

Status converged(const FixedPoint& point) {
  if (point.converged) return {};
  return fail(ErrorCode::exhausted,
              "no solution after {} iterations; a bandwidth of the model may change too much "
              "with the share of writes",
              point.iterations);
}

// The class of a flow that is fastest.
std::size_t fastest(const FlowClasses& flow, std::span<const double> threads,
                    const FixedPoint& point) {
  std::size_t most = flow.first;
  for (std::size_t i = flow.first; i < flow.first + flow.count; ++i) {
    if (threads[i] * point.rate[i] > threads[most] * point.rate[most]) most = i;
  }
  return most;
}

CeilingLoad load_of(const FixedPoint& point, std::size_t ceiling) {
  return {.load = point.load[ceiling] * 1e9,
          .bandwidth = point.bandwidth[ceiling] * 1e9,
          .write_share = point.write_share[ceiling],
          .queue_ns = point.queue[ceiling]};
}

FlowResult result_of(const Flow& flow, const FlowClasses& classes,
                     std::span<const ThreadClass> threads, const FixedPoint& point) {
  FlowResult result;
  for (std::size_t i = classes.first; i < classes.first + classes.count; ++i) {
    const double rate = threads[i].threads * point.rate[i] * 1e9;
    result.rate += rate;
    result.latency_ns += rate * point.delay[i] / classes.bytes;
  }
  result.latency_ns /= result.rate;
  result.rate_low = result.rate_high = result.rate;
  for (std::size_t k = 0; k < flow.accesses.size(); ++k) {
    double latency = classes.idle_ns[k];
    for (const AccessCrossing& each : classes.crossings[k]) {
      latency += (each.reads + each.writes + each.requests) / flow.accesses[k].bytes *
                 point.queue[each.ceiling];
    }
    result.access_latency_ns.push_back(latency);
  }
  return result;
}

}  // namespace

struct FlowSet::Parts {
  std::shared_ptr<const Solver::Parts> solver;  // owns the ceilings
  Classes classes;
  RateSystem system;
  std::vector<double> share;    // of a flow's threads, by class
  std::vector<double> threads;  // by class
  const FixedPoint* point = nullptr;
};

FlowSet::FlowSet(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
FlowSet::~FlowSet() = default;
FlowSet::FlowSet(FlowSet&&) noexcept = default;
FlowSet& FlowSet::operator=(FlowSet&&) noexcept = default;

Status FlowSet::solve(std::span<const double> threads) {
  const Classes& classes = parts_->classes;
  for (std::size_t k = 0; k < classes.flows.size(); ++k) {
    const auto& [first, count, bytes, idle, crossings] = classes.flows[k];
    for (std::size_t i = first; i < first + count; ++i) {
      parts_->threads[i] = threads[k] * parts_->share[i];
    }
  }
  parts_->point = &parts_->system.solve(parts_->threads);
  return converged(*parts_->point);
}

double FlowSet::rate(std::size_t flow) const {
  const FlowClasses& classes = parts_->classes.flows[flow];
  double sum = 0;
  for (std::size_t i = classes.first; i < classes.first + classes.count; ++i) {
    sum += parts_->threads[i] * parts_->point->rate[i] * 1e9;
  }
  return sum;
}

Limit FlowSet::limit(std::size_t flow) {
  const FixedPoint& point = *parts_->point;
  const std::size_t i = fastest(parts_->classes.flows[flow], parts_->threads, point);
  return limit_of(parts_->classes.threads[i], point.delay[i], parts_->system.elasticities(i));
}

CeilingLoad FlowSet::ceiling(std::size_t number) const { return load_of(*parts_->point, number); }

Result<FlowSet> Solver::prepare(std::span<const Flow> flows) const {
  HEADRACE_TRY(Classes classes, parts_->classes(flows, End::value));
  RateSystem system = parts_->system(classes, End::value);
  std::vector<double> share;
  for (const ThreadClass& each : classes.threads) share.push_back(each.threads);
  for (std::size_t k = 0; k < flows.size(); ++k) {
    const FlowClasses& its = classes.flows[k];
    for (std::size_t i = its.first; i < its.first + its.count; ++i) share[i] /= flows[k].threads;
  }
  std::vector<double> threads(share.size());
  return FlowSet(std::make_unique<FlowSet::Parts>(parts_, std::move(classes), std::move(system),
                                                  std::move(share), std::move(threads)));
}

Result<Solution> Solver::Parts::solve(std::span<const Flow> flows, End end) const {
  HEADRACE_TRY(const Classes classes, this->classes(flows, end));
  RateSystem rates = system(classes, end);
  const FixedPoint& point = rates.solve();
  HEADRACE_TRY_STATUS(converged(point));
  std::vector<double> threads;
  for (const ThreadClass& each : classes.threads) threads.push_back(each.threads);
  Solution solution{.iterations = point.iterations};
  for (std::size_t k = 0; k < flows.size(); ++k) {
    solution.flows.push_back(result_of(flows[k], classes.flows[k], classes.threads, point));
    if (end != End::value) continue;  // only rates are asked for
    const std::size_t i = fastest(classes.flows[k], threads, point);
    solution.flows.back().limit =
        limit_of(classes.threads[i], point.delay[i], rates.elasticities(i));
  }
  for (std::size_t c = 0; c < model.ceilings.size(); ++c) {
    solution.ceilings.push_back(load_of(point, c));
  }
  return solution;
}

Result<Solver> Solver::create(const Machine& machine) {
  HEADRACE_TRY(MachineModel model, model_of(machine));
  return create(machine, std::move(model));
}

Result<Solver> Solver::create(const Machine& machine, MachineModel model) {
  for (const Ceiling& ceiling : model.ceilings) {
    const auto& points = ceiling.bandwidth.points;
    const bool above = std::ranges::all_of(
        points, [](const auto& each) { return std::isfinite(each.second) && each.second > 0; });
    if (above && !points.empty()) continue;
    return fail(ErrorCode::invalid, "ceiling '{}': its bandwidth must be above 0",
                printable(ceiling.name));
  }
  return Solver(std::make_shared<const Parts>(machine, std::move(model)));
}

Result<Solution> Solver::solve(std::span<const Flow> flows) const {
  return parts_->solve(flows, End::value);
}

Result<Solution> Solver::solve_with_interval(std::span<const Flow> flows) const {
  HEADRACE_TRY(Solution solution, parts_->solve(flows, End::value));
  for (const End end : {End::low, End::high}) {
    HEADRACE_TRY(const Solution other, parts_->solve(flows, end));
    for (std::size_t i = 0; i < flows.size(); ++i) {
      FlowResult& flow = solution.flows[i];
      flow.rate_low = std::min(flow.rate_low, other.flows[i].rate);
      flow.rate_high = std::max(flow.rate_high, other.flows[i].rate);
    }
  }
  return solution;
}

const MachineModel& Solver::model() const { return parts_->model; }

std::string Solver::text_of(const Limit& limit, const Flow& flow) const {
  switch (limit.kind) {
    case Limit::Kind::ceiling: return parts_->model.ceilings[limit.ceiling].name;
    case Limit::Kind::lines_in_flight:
      return flow.engine ? "engine: bytes in flight" : "core: lines in flight";
    case Limit::Kind::cap: break;
  }
  if (!flow.in_flight_bytes) return "demand";
  return flow.engine ? "engine: peak" : "core: compute";
}

unsigned Solver::cpu_group(unsigned cpu) const { return parts_->crossings.group(cpu); }

Result<IdleLatency> Solver::idle_latency(NodeId initiator, NodeId node) const {
  for (const NodeId id : {initiator, node}) {
    HEADRACE_TRY([[maybe_unused]] const Node* found, parts_->machine.node(id));
  }
  const bool side_cache = parts_->crossings.has_side_cache(node);
  return parts_->latency(initiator, node, side_cache);
}

}  // namespace headrace
