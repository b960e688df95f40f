// SPDX-License-Identifier: Apache-2.0
#include "place/team.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <span>

#include "core/fail.h"
#include "core/text/enum_words.h"
#include "place/near.h"
#include "topology/topology.h"

namespace headrace {
namespace {

constexpr EnumWords<TeamPart::machine> kParts{"part",
                                              {"core", "cluster", "node", "socket", "machine"}};
constexpr EnumWords<TeamOrder::spread> kOrders{"order", {"close", "spread"}};
constexpr EnumWords<TeamMemory::far> kMemories{"memory", {"near", "interleave", "far"}};

// The parts that contain a CPU, from socket to core. Two CPUs are in the same part if their parts
// agree down to it.
constexpr std::size_t kLevels = 4;
struct Seat {
  std::array<std::uint32_t, kLevels> parts{};
  unsigned cpu = 0;
  friend auto operator<=>(const Seat&, const Seat&) = default;
};

// The number of leading Seat::parts that two CPUs of one part have in common.
std::size_t depth_of(TeamPart part) { return kLevels - static_cast<std::size_t>(part); }

// The socket's number; if unknown, that of the first node on the same socket.
std::uint32_t socket_of(const Machine& machine, const Node& node) {
  if (node.socket) return *node.socket;
  for (const Node& each : machine.nodes) {
    if (!each.cpus.empty() && same_socket(machine, each, node).value_or(false)) {
      return raw(each.id);
    }
  }
  return raw(node.id);
}

std::uint32_t core_of(const Machine& machine, unsigned cpu) {
  const auto caches = first_level_caches(machine, cpu);
  return caches.empty() ? cpu : caches.front()->cpus.front();
}

std::vector<Seat> seats_of(const Machine& machine, const CpuSet& allowed) {
  std::vector<Seat> seats;
  for (const Node& node : machine.nodes) {
    const std::uint32_t socket = node.cpus.empty() ? 0 : socket_of(machine, node);
    for (const unsigned cpu : node.cpus) {
      if (!std::ranges::binary_search(allowed, cpu)) continue;
      const CacheLevel* const cache = last_level_cache(machine, cpu);
      const std::uint32_t cluster = cache == nullptr ? 0 : cache->cpus.front();
      seats.push_back({{socket, raw(node.id), cluster, core_of(machine, cpu)}, cpu});
    }
  }
  std::ranges::sort(seats);
  return seats;
}

bool agree(const Seat& a, const Seat& b, std::size_t depth) {
  return std::equal(a.parts.begin(), a.parts.begin() + static_cast<std::ptrdiff_t>(depth),
                    b.parts.begin());
}

// Sorts seats that agree in `level` parts: one from each next part in turn, and each part in the
// same order inside.
std::vector<Seat> spread_out(std::span<const Seat> seats, std::size_t level) {
  if (level == kLevels) return {seats.begin(), seats.end()};
  std::vector<std::vector<Seat>> parts;
  for (std::size_t begin = 0, end = 0; begin < seats.size(); begin = end) {
    while (end < seats.size() && agree(seats[begin], seats[end], level + 1)) ++end;
    parts.push_back(spread_out(seats.subspan(begin, end - begin), level + 1));
  }
  std::vector<Seat> order;
  for (std::size_t i = 0; order.size() < seats.size(); ++i) {
    for (const auto& part : parts) {
      if (i < part.size()) order.push_back(part[i]);
    }
  }
  return order;
}

// The nearness of a node, without its number.
Nearness how_near(const Machine& machine, const Node& from, const Node& to) {
  Nearness found = nearness(machine, from, to);
  found.id = 0;
  return found;
}

// The nodes of the kind that have memory, nearest to `from` first.
Result<std::vector<const Node*>> by_nearness(const Machine& machine, NodeKind kind,
                                             const Node& from) {
  std::vector<const Node*> nodes = machine.of_kind(kind);
  std::erase_if(nodes, [](const Node* node) {
    return node->capacity == Bytes{0} || !node->byte_addressable();
  });
  if (nodes.empty()) return fail(ErrorCode::absent, "no {} node here", to_string(kind));
  std::ranges::sort(nodes, {}, [&](const Node* node) { return nearness(machine, from, *node); });
  return nodes;
}

// The nodes that are as near as the nearest, or as far as the farthest.
std::vector<const Node*> as_near_as(const Machine& machine, const Node& from,
                                    std::vector<const Node*> nodes, const Node& other) {
  const Nearness wanted = how_near(machine, from, other);
  std::erase_if(nodes, [&](const Node* node) { return how_near(machine, from, *node) != wanted; });
  return nodes;
}

// The memories that the CPUs of a node use in turn.
struct Turns {
  std::vector<const Node*> nodes;
  std::size_t next = 0;
  std::size_t step = 1;
};

// The index of a node among its socket's nodes with CPUs, and the number of these.
std::pair<std::size_t, std::size_t> place_in_socket(const Machine& machine, const Node& home) {
  std::size_t place = 0;
  std::size_t count = 0;
  for (const Node& node : machine.nodes) {
    if (node.cpus.empty() || socket_of(machine, node) != socket_of(machine, home)) continue;
    if (node.id == home.id) place = count;
    ++count;
  }
  return {place, count};
}

}  // namespace

std::string_view to_string(TeamPart part) { return kParts.of(part); }

std::string_view to_string(TeamOrder order) { return kOrders.of(order); }

std::string_view to_string(TeamMemory memory) { return kMemories.of(memory); }

CpuSet Team::sorted() const {
  CpuSet set(cpus.begin(), cpus.end());
  std::ranges::sort(set);
  return set;
}

std::vector<NodeId> Team::nodes() const {
  std::vector<NodeId> found = homes;
  std::ranges::sort(found);
  found.erase(std::ranges::unique(found).begin(), found.end());
  return found;
}

Result<Team> choose_team(const Machine& machine, const CpuSet& allowed, const TeamChoice& choice) {
  std::vector<Seat> seats = seats_of(machine, allowed);
  const std::size_t depth = depth_of(choice.part);
  const auto first = choice.cpu ? std::ranges::find(seats, *choice.cpu, &Seat::cpu)
                                : std::ranges::min_element(seats, {}, &Seat::cpu);
  if (first == seats.end()) {
    return fail(ErrorCode::absent,
                "none of the CPUs allowed ({}) is the one asked for and on a "
                "node of this machine; see headrace topo",
                to_string(allowed));
  }
  const Seat reference = *first;
  std::erase_if(seats, [&](const Seat& seat) { return !agree(seat, reference, depth); });
  std::set<unsigned> seated;  // two nodes may contain one CPU
  std::erase_if(seats, [&](const Seat& seat) { return !seated.insert(seat.cpu).second; });
  if (!choice.siblings) {
    const auto rest = std::ranges::unique(
        seats, [](const Seat& a, const Seat& b) { return agree(a, b, kLevels); });
    seats.erase(rest.begin(), rest.end());
  }
  if (choice.order == TeamOrder::spread) seats = spread_out(seats, 0);
  const std::size_t count = choice.count.value_or(seats.size());
  if (count == 0 || count > seats.size()) {
    return fail(ErrorCode::invalid, "{} threads on a {} of {} CPUs; give 1 to as many", count,
                to_string(choice.part), seats.size());
  }
  Team team;
  for (const Seat& seat : std::span(seats).first(count)) {
    team.cpus.push_back(seat.cpu);
    team.homes.emplace_back(NodeId{seat.parts[1]});
  }
  return team;
}

Result<std::vector<NodeId>> memory_of(const Machine& machine, const Team& team, NodeKind kind,
                                      TeamMemory memory) {
  const bool far = memory == TeamMemory::far;
  std::vector<NodeId> found;
  std::map<NodeId, Turns> turns;  // by home node
  for (const NodeId id : team.homes) {
    if (!turns.contains(id)) {
      HEADRACE_TRY(const Node* const home, machine.node(id));
      HEADRACE_TRY(const auto nodes, by_nearness(machine, kind, *home));
      if (memory == TeamMemory::interleave) {
        for (const Node* node : nodes) found.push_back(node->id);
        return found;
      }
      const Node& wanted = far ? *nodes.back() : *nodes.front();
      if (far && how_near(machine, *home, wanted) == how_near(machine, *home, *nodes.front())) {
        return fail(ErrorCode::absent, "no {} node is farther from node {} than another",
                    to_string(kind), raw(id));
      }
      const auto [place, count] = place_in_socket(machine, *home);
      turns[id] = {.nodes = as_near_as(machine, *home, nodes, wanted),
                   .next = far ? place : 0,
                   .step = far ? count : 1};
    }
    Turns& own = turns[id];
    found.push_back(own.nodes[own.next % own.nodes.size()]->id);
    own.next += own.step;
  }
  return found;
}

}  // namespace headrace
