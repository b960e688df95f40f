// SPDX-License-Identifier: Apache-2.0
// How one move is split: which engine copies which part. Pure functions of the machine; the Mover
// carries a route out.
//
// A route covers the move exactly: parts in ascending order, without gaps or overlaps, none empty
// (no parts for a move of no bytes), cut on 4 KiB boundaries. Devices made for copying (DSA, GPU)
// are taken before cores, which have other work. How each policy decides, and what was published of
// it: docs/design/routes.md.
// Thread-compatible.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
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
  std::optional<NodeId> initiator = {};  // the node of the asking CPU; nothing when unknown
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

// (machine, request) -> route. absent: no engine of the machine can copy between these nodes. Must
// not throw: an exception ends the program.
using RoutePolicy = std::function<Result<Route>(const Machine&, const RouteRequest&)>;

namespace HEADRACE_API place {

// One engine: the one at the destination, else at the source, else the first that can. An end
// without an engine of its own is served from the nearest node with CPUs.
Result<Route> one(const Machine& machine, const RouteRequest& request);

// All engines of the kind `one` would use, an equal share each (brute force; Fürst 2024, 3.2.3).
Result<Route> brute_force(const Machine& machine, const RouteRequest& request);

// Smart copy (Fürst 2024, 3.2.3): within a socket all engines of that socket, across sockets only
// the two at the ends; and below 1 MiB one engine, since splitting costs more than it gives (5.2).
Result<Route> smart(const Machine& machine, const RouteRequest& request);

// By the measured rates of the profile: the set of engines and shares that finish first, each share
// such that all engines end together (T = latency + share / bandwidth). It takes the rates of
// several engines to add up, as they were measured one by one. Falls back to `smart` where nothing
// was measured, and says so.
Result<Route> measured(const Machine& machine, const RouteRequest& request);

// The policy of that name: "one", "brute_force", "smart", "measured". absent lists them.
Result<RoutePolicy> route_policy(std::string_view name);

}  // namespace HEADRACE_API place

// The engines of `machine` that can copy between two nodes, ascending.
std::vector<EngineId> engines_between(const Machine& machine, NodeId from, NodeId to);

}  // namespace HEADRACE_API headrace
