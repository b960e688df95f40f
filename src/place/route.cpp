#include "headrace/route.h"

#include <algorithm>

#include "core/fail.h"

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

Result<Route> one(const Machine& machine, const RouteRequest& request) {
  const auto able = engines_between(machine, request.from, request.to);
  if (able.empty()) {
    return fail(ErrorCode::absent, "no engine can copy from node {} to node {}", raw(request.from),
                raw(request.to));
  }
  const auto at = [&](NodeId home) {
    return std::ranges::find_if(able, [&](EngineId id) { return machine.find(id)->home == home; });
  };
  auto chosen = at(request.to);
  if (chosen == able.end()) chosen = at(request.from);
  if (chosen == able.end()) chosen = able.begin();
  return Route{{{0, request.bytes, *chosen}}, "one engine"};
}
Result<Route> brute_force(const Machine& machine, const RouteRequest& request) {
  return one(machine, request);
}
Result<Route> smart(const Machine& machine, const RouteRequest& request) {
  return one(machine, request);
}
Result<Route> measured(const Machine& machine, const RouteRequest& request) {
  return one(machine, request);
}

Result<RoutePolicy> route_policy(std::string_view name) {
  if (name == "one") return one;
  if (name == "brute_force") return brute_force;
  if (name == "smart") return smart;
  if (name == "measured") return measured;
  return fail(ErrorCode::absent,
              "no route policy '{}'; there are one, brute_force, smart, measured", name);
}

}  // namespace place
}  // namespace headrace
