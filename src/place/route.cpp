// SPDX-License-Identifier: Apache-2.0
#include "headrace/route.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "core/fail.h"
#include "place/near.h"
#include "place/shares.h"

namespace headrace {

std::vector<EngineId> engines_between(const Machine& machine, NodeId from, NodeId to) {
  std::vector<EngineId> found;
  const Node* source = machine.find(from);
  const Node* destination = machine.find(to);
  if (source == nullptr || destination == nullptr) return found;
  for (const Engine& engine : machine.engines) {
    if (can_copy(engine, *source, *destination)) found.push_back(engine.id);
  }
  return found;
}

namespace place {
namespace {

// `smart` gives smaller moves to one engine: splitting them costs more than it gains (Fürst 2024,
// 5.2 and 3.2.1).
constexpr Bytes kSplitFrom = 1_MiB;

// A checked request: its two nodes, and the engines that can copy between them, in order of
// preference.
struct Move {
  const Machine& machine;
  const Node& from;
  const Node& to;
  std::vector<EngineId> able;

  // The able engines whose home node satisfies `accepts`; only of one kind, if given.
  template <class Predicate>
  std::vector<EngineId> select(Predicate accepts,
                               std::optional<EngineKind> kind = std::nullopt) const {
    std::vector<EngineId> selected;
    for (const EngineId id : able) {
      const Engine& engine = *machine.find(id);
      const Node* home = machine.find(engine.home);
      if (kind && engine.kind != *kind) continue;
      if (home != nullptr && accepts(*home)) selected.push_back(id);
    }
    return selected;
  }
};

Result<Move> check_request(const Machine& machine, const RouteRequest& request) {
  HEADRACE_TRY(const Node* from, machine.node(request.from));
  HEADRACE_TRY(const Node* to, machine.node(request.to));
  auto able = engines_between(machine, request.from, request.to);
  if (able.empty()) {
    return fail(ErrorCode::absent,
                "no engine can copy from node {} ({}) to node {} ({}); go through a memory node",
                raw(from->id), to_string(from->kind), raw(to->id), to_string(to->kind));
  }
  // Devices made for copying are preferred to cores, which have other work (docs/design/routes.md).
  std::ranges::sort(able, {}, [&](EngineId id) {
    return std::pair(machine.find(id)->kind == EngineKind::cpu, id);
  });
  return Move{machine, *from, *to, std::move(able)};
}

// The engine of an unsplit move: at the destination, else at the source, else the first able one.
EngineId best_placed(const Move& move) {
  const auto at = [&](NodeId id) {
    return move.select([&](const Node& home) { return home.id == id; });
  };
  for (const Node* end : {&move.to, &move.from}) {
    if (const auto found = at(end->id); !found.empty()) return found.front();
    // A node without CPUs is served by the nearest node with CPUs.
    const Node* host = end->byte_addressable() ? host_of(move.machine, *end) : nullptr;
    if (host == nullptr) continue;
    if (const auto found = at(host->id); !found.empty()) return found.front();
  }
  return move.able.front();
}

std::string name_of(const Machine& machine, EngineId id) { return machine.find(id)->name; }

Route split(Bytes bytes, std::vector<EngineId> engines, std::string reason) {
  std::ranges::sort(engines);
  return {cut_equally(bytes, engines), std::move(reason)};
}

Route unsplit(const Move& move, Bytes bytes, std::string_view why) {
  const EngineId engine = best_placed(move);
  return {cut_equally(bytes, std::span(&engine, 1)),
          fmt::format("{} alone: {}", name_of(move.machine, engine), why)};
}

// The node whose engines serve `node`: the nearest one with CPUs, else `node` itself.
NodeId serving_node(const Machine& machine, const Node& node) {
  const Node* host = host_of(machine, node);
  return host == nullptr ? node.id : host->id;
}

}  // namespace

Result<Route> one(const Machine& machine, const RouteRequest& request) {
  HEADRACE_TRY(const Move move, check_request(machine, request));
  return unsplit(move, request.bytes, "policy one");
}

Result<Route> brute_force(const Machine& machine, const RouteRequest& request) {
  HEADRACE_TRY(const Move move, check_request(machine, request));
  const EngineKind kind = machine.find(best_placed(move))->kind;
  auto engines = move.select([](const Node&) { return true; }, kind);
  std::string reason =
      fmt::format("brute force: all {} {} engines", engines.size(), to_string(kind));
  return split(request.bytes, std::move(engines), std::move(reason));
}

Result<Route> smart(const Machine& machine, const RouteRequest& request) {
  HEADRACE_TRY(const Move move, check_request(machine, request));
  if (request.bytes < kSplitFrom) return unsplit(move, request.bytes, "below 1 MiB");
  const EngineKind kind = machine.find(best_placed(move))->kind;
  const auto together = same_socket(machine, move.from, move.to);
  if (!together) return unsplit(move, request.bytes, "sockets unknown");
  std::vector<EngineId> engines;
  if (*together) {
    engines = move.select(
        [&](const Node& home) { return same_socket(machine, home, move.to).value_or(false); },
        kind);
  } else {
    const NodeId source = serving_node(machine, move.from);
    const NodeId destination = serving_node(machine, move.to);
    engines = move.select(
        [&](const Node& home) { return home.id == source || home.id == destination; }, kind);
  }
  if (engines.size() < 2) return unsplit(move, request.bytes, "no second engine near");
  std::string reason = fmt::format("smart: {} {} engines {}", engines.size(), to_string(kind),
                                   *together ? "of the socket" : "at the two ends");
  return split(request.bytes, std::move(engines), std::move(reason));
}

Result<RoutePolicy> route_policy(std::string_view name) {
  if (name == "one") return one;
  if (name == "brute_force") return brute_force;
  if (name == "smart") return smart;
  if (name == "measured") return measured;
  return fail(ErrorCode::absent, "no route policy '{}'; say one, brute_force, smart or measured",
              name);
}

}  // namespace place
}  // namespace headrace
