#include "measure/dsa_points.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "headrace/route.h"

namespace headrace {
namespace {

// On hardware so much is moved for each time that is taken, but not by more repeats than these; in
// a model, where every repeat is like the first, a few do.
constexpr Bytes kMovedPerTime = 256_MiB;
constexpr std::size_t kMostRepeats = 1000;
constexpr std::size_t kModelRepeats = 4;
constexpr Bytes kMoved = 1_GiB;    // by route
constexpr unsigned kCopies = 120;  // split over the threads (Fuerst 2024, 3.2.2)
constexpr unsigned kAsync = 32;    // under way, of who does not wait for each

std::size_t repeats(const DsaScope& scope, Bytes bytes) {
  if (scope.emulated) return kModelRepeats;
  return std::clamp<std::size_t>(kMovedPerTime / bytes, 1, kMostRepeats);
}

std::string name_of(const DsaScope& scope, EngineId id) { return scope.machine.find(id)->name; }

// All threads alike, as the row says, by one device.
DsaPoint devices_point(const DsaScope& scope, const DsaThread& thread, std::size_t threads,
                       std::string experiment, const DsaShape& shape = {}) {
  DsaPoint point{.threads = std::vector<DsaThread>(threads, thread), .shape = shape};
  point.row = {.experiment = std::move(experiment),
               .method = std::string(to_string(thread.method)),
               .bytes = thread.bytes,
               .threads = static_cast<unsigned>(threads),
               .at_once = static_cast<unsigned>(thread.at_once),
               .window = static_cast<unsigned>(thread.window),
               .copies = static_cast<unsigned>(threads * thread.copies),
               .route = "one",
               .from = thread.from,
               .to = thread.to,
               .engines = {name_of(scope, thread.engine)},
               .queue = shape.shared ? "shared" : "dedicated",
               .group_engines = scope.emulated ? shape.engines.value_or(1) : shape.engines};
  return point;
}

// Within the first device's node, where the thesis has its 3.2.1 and 3.2.2.
DsaThread at_home(const DsaScope& scope, Bytes bytes) {
  return {
      .engine = scope.engines.front(), .from = scope.home(), .to = scope.home(), .bytes = bytes};
}

std::vector<Bytes> sizes_or(const DsaScope& scope, Bytes last, std::uint64_t factor) {
  std::vector<Bytes> sizes = scope.sizes;
  if (sizes.empty()) {
    for (Bytes size = 1_KiB; size <= last; size = size * factor) sizes.push_back(size);
  }
  return sizes;
}

std::vector<DsaPoint> dsa_submission_points(const DsaScope& scope) {
  constexpr std::pair<DsaMethod, std::size_t> kWays[] = {
      {DsaMethod::single, 1},   {DsaMethod::batch, 10},    {DsaMethod::batch, 50},
      {DsaMethod::vectored, 1}, {DsaMethod::vectored, 10}, {DsaMethod::vectored, 50}};
  std::vector<DsaPoint> points;
  for (const Bytes size : sizes_or(scope, 1_GiB, 2)) {
    for (const auto& [method, at_once] : kWays) {
      DsaThread thread = at_home(scope, size);
      thread.method = method;
      thread.at_once = thread.window = at_once;
      thread.copies = at_once * repeats(scope, size * at_once);
      points.push_back(devices_point(scope, thread, 1, "submission"));
    }
  }
  return points;
}

std::vector<DsaPoint> dsa_threads_points(const DsaScope& scope) {
  std::vector<DsaPoint> points;
  for (const Bytes size : {1_MiB, 1_GiB}) {
    for (const std::size_t threads : {1U, 2U, 12U}) {
      DsaThread thread = at_home(scope, size);
      thread.copies = kCopies / threads;
      points.push_back(devices_point(scope, thread, threads, "threads"));
    }
  }
  return points;
}

DsaPoint route_point(const DsaScope& scope, std::pair<NodeId, NodeId> ends, const char* policy) {
  DsaPoint point;
  point.row = {.experiment = "route",
               .method = "single",
               .bytes = kMoved,
               .route = policy,
               .from = ends.first,
               .to = ends.second,
               .queue = "shared"};
  if (scope.emulated) point.row.group_engines = 1;
  const auto route =
      (*place::route_policy(policy))(scope.machine, {ends.first, ends.second, kMoved});
  if (!route) {
    point.kind = DsaPoint::Kind::nothing;
    point.row.reason = route.error().message;
    return point;
  }
  for (const RoutePart& part : route->parts) {
    point.threads.push_back(
        {.engine = part.engine, .from = ends.first, .to = ends.second, .bytes = part.length});
    point.row.engines.push_back(name_of(scope, part.engine));
  }
  for (const EngineId engine : scope.engines) {
    if (std::ranges::find(route->parts, engine, &RoutePart::engine) == route->parts.end()) {
      point.row.free_engines.push_back(name_of(scope, engine));
    }
  }
  point.row.threads = point.row.copies = static_cast<unsigned>(route->parts.size());
  return point;
}

std::vector<DsaPoint> dsa_route_points(const DsaScope& scope) {
  std::vector<DsaPoint> points;
  for (const auto& pair : dsa_pairs(scope)) {
    for (const char* policy : {"brute_force", "smart"}) {
      points.push_back(route_point(scope, pair, policy));
    }
  }
  return points;
}

DsaPoint nodes_point(const DsaScope& scope, std::pair<NodeId, NodeId> ends, unsigned cores) {
  DsaPoint point{.kind = DsaPoint::Kind::nodes};
  point.row = {.experiment = "cpu",
               .method = "cores",
               .bytes = kMoved,
               .threads = cores,
               .copies = cores,
               .route = "cores",
               .from = ends.first,
               .to = ends.second};
  if (scope.emulated) {
    point.kind = DsaPoint::Kind::nothing;
    point.row.reason = fmt::format(
        "how fast the cores of {} copy between these nodes is published nowhere (the thesis left "
        "its 3.2.4 empty), and the model has no cores",
        scope.machine.name);
  }
  return point;
}

std::vector<DsaPoint> dsa_cpu_points(const DsaScope& scope) {
  std::vector<DsaPoint> points;
  for (const Bytes size : sizes_or(scope, 256_MiB, 4)) {
    DsaPoint core{.kind = DsaPoint::Kind::core};
    core.row = {.experiment = "cpu", .method = "cores", .bytes = size, .route = "cores"};
    points.push_back(std::move(core));
    for (const std::size_t window : {1U, kAsync}) {
      DsaThread thread = at_home(scope, size);
      thread.window = window;
      thread.copies = window * repeats(scope, size * window);
      points.push_back(devices_point(scope, thread, 1, "cpu"));
    }
  }
  const std::size_t all = scope.machine.find(scope.home())->cpus.size();
  for (const auto& pair : dsa_pairs(scope)) {
    points.push_back(nodes_point(scope, pair, 1));
    if (all > 1) points.push_back(nodes_point(scope, pair, static_cast<unsigned>(all)));
  }
  return points;
}

std::vector<DsaPoint> dsa_queue_points(const DsaScope& scope) {
  std::vector<DsaPoint> points;
  for (const unsigned engines : {1U, 2U, 4U}) {
    for (const bool shared : {true, false}) {
      for (const Bytes size : {4_KiB, 64_KiB, 1_MiB}) {
        for (const std::size_t depth : {1U, 4U, 16U, 64U}) {
          DsaThread thread = at_home(scope, size);
          thread.window = depth;
          thread.copies = depth * repeats(scope, size * depth);
          points.push_back(
              devices_point(scope, thread, 1, "queue", {.engines = engines, .shared = shared}));
        }
      }
    }
  }
  return points;
}

// One thread's copies of 1 MiB, some of them always under way, and as much by others beside it.
DsaPoint beside_point(const DsaScope& scope, std::size_t others, bool own_devices) {
  const auto [from, to] = dsa_pairs(scope).front();
  const DsaThread thread{.engine = scope.engines.front(),
                         .from = from,
                         .to = to,
                         .bytes = 1_MiB,
                         .copies = kCopies,
                         .window = 8};
  DsaPoint point = devices_point(scope, thread, 1 + others, "interference");
  point.first_alone = true;
  if (others == 0) return point;
  if (!own_devices) {
    point.row.beside = fmt::format("{} more by the same device", others);
    return point;
  }
  point.row.beside = fmt::format("{} more by devices of their own", others);
  for (std::size_t i = 1; i <= others; ++i) {
    point.threads[i].engine = scope.engines[i];
    point.row.engines.push_back(name_of(scope, scope.engines[i]));
  }
  return point;
}

std::vector<DsaPoint> dsa_interference_points(const DsaScope& scope) {
  std::vector<DsaPoint> points;
  for (const std::size_t others : {0U, 1U, 3U}) {
    points.push_back(beside_point(scope, others, false));
  }
  for (const std::size_t others : {1U, 3U, 7U}) {
    if (others < scope.engines.size()) points.push_back(beside_point(scope, others, true));
  }
  for (const char* method : {"single", "stream"}) {
    DsaPoint point = beside_point(scope, 0, false);
    point.kind = DsaPoint::Kind::stream;
    point.row.method = method;
    point.row.beside = method == std::string_view("stream") ? "1 copy by a device" : "STREAM triad";
    if (scope.emulated) {
      point.kind = DsaPoint::Kind::nothing;
      point.row.reason =
          "the model has no cores: how a memory controller divides itself between them and a "
          "device is published nowhere";
    }
    points.push_back(std::move(point));
  }
  return points;
}

constexpr DsaExperiment kDsaExperiments[] = {
    {"submission", "single, batch and vectored hand-over by size (thesis 3.2.1, figure 3.2)",
     dsa_submission_points},
    {"threads", "1, 2 and 12 threads on one shared queue (thesis 3.2.2, figure 3.3)",
     dsa_threads_points},
    {"route", "1 GiB from DDR to HBM by all devices and by few (thesis 3.2.3, figures 3.5, 3.6)",
     dsa_route_points},
    {"cpu", "cores against a device by size, and between nodes (thesis 3.2.4)", dsa_cpu_points},
    {"queue", "engines per group, shared and dedicated queues, copies under way", dsa_queue_points},
    {"interference", "a copy beside others, and beside STREAM", dsa_interference_points},
};

}  // namespace

std::span<const DsaExperiment> all_dsa_experiments() { return kDsaExperiments; }

BytesPerSecond rate_of(const DsaPoint& point, const DsaTimes& times) {
  Bytes bytes{0};
  for (const DsaThread& thread : point.threads) {
    bytes += thread.bytes * thread.copies;
    if (point.first_alone) break;
  }
  const Nanoseconds time = point.first_alone ? times.each.front() : times.all;
  return bytes / std::max(time, Nanoseconds{1});
}

std::vector<std::pair<NodeId, NodeId>> dsa_pairs(const DsaScope& scope) {
  std::vector<std::pair<NodeId, NodeId>> pairs;
  for (const unsigned to : {8U, 11U, 12U, 15U}) {
    const Node* node = scope.machine.find(static_cast<NodeId>(to));
    if (node != nullptr && node->kind == NodeKind::hbm) pairs.emplace_back(scope.home(), node->id);
  }
  if (!pairs.empty()) return pairs;
  for (const Node& node : scope.machine.nodes) {
    const bool other = node.byte_addressable() && node.id != scope.home();
    if (other) pairs.emplace_back(scope.home(), node.id);
  }
  if (pairs.empty()) pairs.emplace_back(scope.home(), scope.home());
  return pairs;
}

}  // namespace headrace
