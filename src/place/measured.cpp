// SPDX-License-Identifier: Apache-2.0
// place::measured: shares by which all engines end together.
//
// An engine with T(s) = latency + s / bandwidth takes s(T) = bandwidth (T - latency) bytes in a
// time T. The shares of a set of engines add up to the move's bytes V at
//   T = (V + sum(latency x bandwidth)) / sum(bandwidth),
// and an engine helps exactly when its latency is below T. So engines join in order of latency
// until one would not help: no search over sets is needed.

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "core/fail.h"
#include "headrace/route.h"
#include "place/shares.h"

namespace headrace::place {
namespace {

struct Candidate {
  EngineId engine;
  double latency;    // seconds
  double bandwidth;  // bytes per second

  double time(double bytes) const { return latency + bytes / bandwidth; }
};

// The measured engines, in order of latency.
std::vector<Candidate> measured_engines(const Machine& machine, const RouteRequest& request) {
  std::vector<Candidate> candidates;
  for (const EngineId id : engines_between(machine, request.from, request.to)) {
    const CopyRate* rate = machine.rate(id, request.from, request.to);
    if (rate == nullptr || !std::isfinite(rate->bandwidth.value) || rate->bandwidth.value <= 0) {
      continue;
    }
    candidates.push_back({id, std::max(0.0, seconds(rate->latency)), rate->bandwidth.value});
  }
  std::ranges::sort(candidates, {},
                    [](const Candidate& each) { return std::pair(each.latency, each.engine); });
  return candidates;
}

// The time of the set if all its engines end together.
double common_time(double bytes, std::span<const Candidate> set) {
  double work = bytes, bandwidth = 0;
  for (const Candidate& each : set) {
    work += each.latency * each.bandwidth;
    bandwidth += each.bandwidth;
  }
  return work / bandwidth;
}

std::size_t helpers(double bytes, std::span<const Candidate> candidates) {
  std::size_t count = 1;
  while (count < candidates.size()) {
    const double time = common_time(bytes, candidates.first(count));
    const Candidate& next = candidates[count];
    // A share of less than a page does not justify a piece.
    const double joined = common_time(bytes, candidates.first(count + 1));
    const double share = (joined - next.latency) * next.bandwidth;
    if (next.latency >= time || share < static_cast<double>(kShareUnit.value)) break;
    ++count;
  }
  return count;
}

// The end of the last engine, by the same costs.
double makespan(const std::vector<RoutePart>& parts, std::span<const Candidate> set) {
  double last = 0;
  for (const RoutePart& part : parts) {
    const auto by = std::ranges::find(set, part.engine, &Candidate::engine);
    last = std::max(last, by->time(static_cast<double>(part.length.value)));
  }
  return last;
}

std::vector<RoutePart> cut_for(Bytes bytes, std::vector<Candidate> set) {
  const double time = common_time(static_cast<double>(bytes.value), set);
  std::ranges::sort(set, {}, &Candidate::engine);
  std::vector<EngineId> engines;
  std::vector<Bytes> shares;
  for (const Candidate& each : set) {
    engines.push_back(each.engine);
    const double share = std::max(0.0, (time - each.latency) * each.bandwidth);
    const bool all = share >= static_cast<double>(bytes.value);
    shares.push_back(all ? bytes : Bytes{static_cast<std::uint64_t>(share)});
  }
  return cut(bytes, engines, shares);
}

}  // namespace

Result<Route> measured(const Machine& machine, const RouteRequest& request) {
  const auto candidates = measured_engines(machine, request);
  if (candidates.empty()) {
    HEADRACE_TRY(Route route, smart(machine, request));
    route.reason = fmt::format("nothing measured from node {} to node {}, so {}", raw(request.from),
                               raw(request.to), route.reason);
    return route;
  }
  const double bytes = static_cast<double>(request.bytes.value);
  const Candidate& best =
      *std::ranges::min_element(candidates, {}, [&](const Candidate& c) { return c.time(bytes); });
  Route alone{cut(request.bytes, std::span(&best.engine, 1), std::span(&request.bytes, 1)),
              fmt::format("measured: {} alone is fastest", machine.find(best.engine)->name)};

  const std::size_t count = helpers(bytes, candidates);
  if (count == 1) return alone;
  const std::span<const Candidate> set = std::span(candidates).first(count);
  auto parts = cut_for(request.bytes, {set.begin(), set.end()});
  // For a small move, rounding to pages can cost more than a second engine gains.
  if (parts.size() < 2 || makespan(parts, set) >= best.time(bytes)) return alone;
  std::string reason = fmt::format("measured: {} engines end together", parts.size());
  return Route{std::move(parts), std::move(reason)};
}

}  // namespace headrace::place
