// SPDX-License-Identifier: Apache-2.0
// The division of one move over engines. Pure functions of the machine; the Mover executes a route.
//
// A route covers the move exactly: parts in ascending order, without gaps or overlaps, none empty,
// cut at multiples of 4 KiB. A move of no bytes has no parts. Devices made for copying (DSA, GPU)
// are preferred to cores, which have other work. Rules of each policy and published results:
// docs/design/routes.md. Thread-compatible.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "headrace/export.h"
#include "headrace/machine.h"
#include "headrace/result.h"
#include "headrace/units.h"

namespace HEADRACE_API headrace {

struct RouteRequest {
  NodeId from;
  NodeId to;
  Bytes bytes;
};

struct RoutePart {
  std::uint64_t offset = 0;
  Bytes length;
  EngineId engine;
  friend bool operator==(const RoutePart&, const RoutePart&) = default;
};

struct Route {
  std::vector<RoutePart> parts;
  std::string reason;
};

// (machine, request) -> route. Must not throw: an exception ends the program.
// Errors: absent: no engine of the machine can copy between these nodes.
using RoutePolicy = std::function<Result<Route>(const Machine&, const RouteRequest&)>;

namespace HEADRACE_API place {

// One engine: at the destination, else at the source, else the first that can copy. A node without
// its own engine uses that of the nearest node with CPUs.
Result<Route> one(const Machine& machine, const RouteRequest& request);

// All engines of the kind that `one` would use, with equal shares (brute force; Fürst 2024, 3.2.3).
Result<Route> brute_force(const Machine& machine, const RouteRequest& request);

// Smart copy (Fürst 2024, 3.2.3). Within a socket: all its engines. Across sockets: only the
// engines at both ends. Below 1 MiB: one engine, since splitting costs more than it gains (5.2).
Result<Route> smart(const Machine& machine, const RouteRequest& request);

// The set of engines and shares that finishes first by the profile's measured rates. Shares are
// chosen so that all engines end together (T = latency + share / bandwidth). Assumes that the rates
// of several engines add up, as they were measured one at a time. Falls back to `smart` if no rate
// was measured; the route's reason says so.
Result<Route> measured(const Machine& machine, const RouteRequest& request);

// The policy of this name: "one", "brute_force", "smart", "measured". Errors: absent, with this
// list.
Result<RoutePolicy> route_policy(std::string_view name);

}  // namespace HEADRACE_API place

// The engines of `machine` that can copy between two nodes, in ascending order.
std::vector<EngineId> engines_between(const Machine& machine, NodeId from, NodeId to);

}  // namespace HEADRACE_API headrace
