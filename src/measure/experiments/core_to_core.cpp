// SPDX-License-Identifier: Apache-2.0
// The time in which a cache line passes from one CPU to another (ping_pong.h): half a round trip.
//
// The line is in memory near the first CPU. A word gives the distance of two CPUs, the first that
// holds of: `core` (threads of one core), `cache` (they share another cache), `node`, `socket`,
// `far`.
//
// With a budget, one pair represents all pairs of the same distance whose nodes have the same
// distance (`pairs` is their number). It is a pair of the observing CPU (observer_of) where that
// has one, rather than of CPU 0, which gets most interrupts.
//
// Without a budget the matrix is complete up to kMostOfMatrix CPUs. A larger machine gets the
// matrix of that many CPUs, spread over it, and the pairs of a budget, since every n-th CPU may
// have no partner of its core or cache in the matrix. All pairs of a requested CPU are measured.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/fail.h"
#include "headrace/placement.h"
#include "measure/experiments/experiments.h"
#include "measure/instruments/chase.h"
#include "measure/instruments/side_by_side/ping_pong.h"
#include "measure/instruments/worker_pool.h"

namespace headrace::experiment_core_to_core {

using namespace session;

namespace {

constexpr std::string_view kName = "core_to_core";
constexpr Parameter kParameters[] = {
    {"cpu", ParameterKind::count},
    {"other_cpu", ParameterKind::count},
    {"apart", ParameterKind::word},
};
constexpr std::string_view kDetails[] = {"round_trip", "pairs"};

// They have 2016 pairs: about 20 s per round.
constexpr std::size_t kMostOfMatrix = 64;
constexpr std::size_t kLines = 16;
constexpr std::size_t kTripsPerLine = 256;
constexpr Nanoseconds kOneSample = std::chrono::milliseconds{3};

class Handover final : public Probe {
 public:
  Handover(std::array<unsigned, 2> cpus, std::span<std::byte> memory)
      : cpus_(cpus), memory_(memory) {}

  Result<Sample> sample() override {
    HEADRACE_TRY(const PingPong found, ping_pong(cpus_, memory_, kTripsPerLine));
    return Sample{.value = found.round_trip_ns / 2,
                  .details = {{"round_trip", found.round_trip_ns}},
                  .cpu_share = found.cpu_share};
  }

 private:
  const std::array<unsigned, 2> cpus_;
  const std::span<std::byte> memory_;
};

// A CPU, and the data that its distance to others depends on.
struct Place {
  unsigned cpu = 0;
  const Node* node = nullptr;    // its own; nullptr: the machine does not list it
  const Node* memory = nullptr;  // the nearest with memory to allocate
  std::vector<const CacheLevel*> caches = {};
};

std::vector<Place> places_of(const Machine& machine) {
  std::vector<Place> places;
  for (const Node* node : nodes_with_cpus(machine)) {
    const std::vector<const Node*> nearest = one_of_each_kind(machine, *node);
    if (nearest.empty()) continue;
    for (const unsigned cpu : usable_cpus(node)) {
      places.push_back({cpu, node, nearest.front()});
      for (const CacheLevel& cache : machine.caches) {
        if (std::ranges::binary_search(cache.cpus, cpu)) places.back().caches.push_back(&cache);
      }
    }
  }
  std::ranges::sort(places, {}, &Place::cpu);
  return places;
}

enum class Apart : std::uint8_t { core, cache, node, socket, far };

std::string_view word_of(Apart apart) {
  constexpr std::string_view kWords[] = {"core", "cache", "node", "socket", "far"};
  return kWords[static_cast<std::size_t>(apart)];
}

Apart apart_of(const Place& a, const Place& b) {
  Apart apart = Apart::far;
  if (a.node->socket && a.node->socket == b.node->socket) apart = Apart::socket;
  if (a.node == b.node) apart = Apart::node;
  for (const CacheLevel* cache : a.caches) {
    if (std::ranges::find(b.caches, cache) == b.caches.end()) continue;
    apart = std::min(apart, cache->level == 1 ? Apart::core : Apart::cache);
  }
  return apart;
}

// The key of similar pairs.
struct Likeness {
  Apart apart = Apart::far;
  unsigned distance = 0;  // from the firmware
  friend auto operator<=>(const Likeness&, const Likeness&) = default;
};

Likeness likeness_of(const Place& a, const Place& b) {
  const auto rated = a.node->distances.find(b.node->id);
  return {apart_of(a, b), rated == a.node->distances.end() ? 0 : rated->second};
}

Point pair_point(const Place& a, const Place& b, std::size_t pairs) {
  const Apart apart = apart_of(a, b);
  Point point;
  point.row =
      make_row(kName, kParameters,
               {std::uint64_t{a.cpu}, std::uint64_t{b.cpu}, std::string(word_of(apart))}, "ns");
  point.row.cpus = list_of_cpus({a.cpu, b.cpu});
  point.row.details["pairs"] = static_cast<double>(pairs);
  point.rank = 1;
  point.memory = {a.memory->id, PageSize::base};
  point.cost = 3 * kOneSample;
  point.prepare = [key = point.memory, cpus = std::array{a.cpu, b.cpu}](
                      BufferPool& buffers, Random& random) -> Result<std::unique_ptr<Probe>> {
    // Different lines in each mapping.
    constexpr std::size_t kPlaces = 16;
    HEADRACE_TRY(const auto memory, buffers.get(key, 0, Bytes{kPlaces * kLines * kLine}));
    const std::size_t first = random.below(kPlaces) * kLines * kLine;
    return std::make_unique<Handover>(cpus, memory.subspan(first, kLines * kLine));
  };
  return point;
}

// At most `most`, in equal steps, so that each node is represented.
std::vector<Place> evenly_chosen(const std::vector<Place>& all, std::size_t most) {
  if (all.size() <= most) return all;
  std::vector<Place> some;
  for (std::size_t i = 0; i < most; ++i) some.push_back(all[i * all.size() / most]);
  return some;
}

std::vector<Point> matrix_of(const std::vector<Place>& places) {
  std::vector<Point> points;
  for (std::size_t i = 0; i < places.size(); ++i) {
    for (std::size_t j = i + 1; j < places.size(); ++j) {
      points.push_back(pair_point(places[i], places[j], 1));
    }
  }
  return points;
}

// The same places, with those of CPU 0's core last.
std::vector<Place> quiet_first(const Machine& machine, std::vector<Place> places) {
  std::ranges::stable_partition(places, [&](const Place& place) {
    return place.cpu != 0 && !share_core(machine, 0, place.cpu);
  });
  return places;
}

// One pair per key: of the observer (observer_of), or of the next CPU with such a pair. A CPU of
// CPU 0's core is used only if there is no other. For 384 CPUs this takes some milliseconds.
std::vector<Point> one_of_alike(const Machine& machine, const std::vector<Place>& in_order) {
  const std::vector<Place> places = quiet_first(machine, in_order);
  struct Alike {
    const Place* a = nullptr;
    const Place* b = nullptr;
    std::size_t pairs = 0;
  };
  std::map<Likeness, Alike> found;
  for (std::size_t j = 1; j < places.size(); ++j) {
    for (std::size_t i = 0; i < j; ++i) {
      Alike& alike = found[likeness_of(places[i], places[j])];
      if (alike.pairs++ == 0) alike = {&places[i], &places[j], 1};
    }
  }
  std::vector<Point> points;
  for (const auto& [likeness, alike] : found) {
    // In the matrix's order.
    const auto [a, b] = std::minmax(alike.a, alike.b, [](const Place* one, const Place* other) {
      return one->cpu < other->cpu;
    });
    points.push_back(pair_point(*a, *b, alike.pairs));
  }
  return points;
}

// Adds points whose row is not there yet.
void add_unknown(std::vector<Point>& points, std::vector<Point> more) {
  std::set<std::string> known;
  for (const Point& point : points) known.insert(point.row.key());
  for (Point& point : more) {
    if (!known.contains(point.row.key())) points.push_back(std::move(point));
  }
}

// All pairs of requested CPUs, in the requested order; each comes first in its own pairs.
std::vector<Point> pairs_asked_for(const Scope& scope, const std::vector<Place>& places) {
  const std::vector<std::uint64_t> firsts = scope.numbers("cpu");
  const std::vector<std::uint64_t> seconds = scope.numbers("other_cpu");
  const auto is_in = [](const std::vector<std::uint64_t>& asked, const Place& place) {
    return asked.empty() || std::ranges::find(asked, place.cpu) != asked.end();
  };
  std::vector<Point> points;
  for (const Place& a : places) {
    if (!is_in(firsts, a)) continue;
    for (const Place& b : places) {
      if (a.cpu != b.cpu && is_in(seconds, b)) points.push_back(pair_point(a, b, 1));
    }
  }
  return points;
}

std::vector<Point> list_points(const Scope& scope) {
  const std::vector<Place> places = places_of(scope.machine);
  std::vector<Point> points;
  if (places.size() < 2) {
    points.push_back(
        without({.experiment = std::string(kName)}, "one CPU has no other to hand a line to"));
    return points;
  }
  if (scope.asks("cpu") || scope.asks("other_cpu")) return pairs_asked_for(scope, places);
  if (scope.budget) return one_of_alike(scope.machine, places);
  points = matrix_of(evenly_chosen(places, kMostOfMatrix));
  if (places.size() > kMostOfMatrix) {
    add_unknown(points, one_of_alike(scope.machine, places));
    points.push_back(
        without({.experiment = std::string(kName)},
                fmt::format("the matrix has {} of {} CPUs; name a CPU to measure all its pairs",
                            kMostOfMatrix, places.size())));
  }
  return points;
}

}  // namespace

const Experiment kExperiment{kName, "latency of handing a cache line from one CPU to another",
                             kParameters, kDetails, list_points};

}  // namespace headrace::experiment_core_to_core
