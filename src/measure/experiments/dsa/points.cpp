// SPDX-License-Identifier: Apache-2.0
#include "measure/experiments/dsa/points.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "headrace/route.h"
#include "measure/instruments/worker_pool.h"

namespace headrace::experiment_dsa {

using namespace session;

namespace {

// Each timed sample moves kMovedPerTime by at most kMostRepeats.
constexpr Bytes kMovedPerTime = 256_MiB;
constexpr std::size_t kMostRepeats = 1000;
constexpr std::size_t kRepeatsOfNothing = 4;
constexpr Bytes kMoved = 1_GiB;    // by route
constexpr unsigned kCopies = 120;  // split over the threads (Fürst 2024, 3.2.2)
constexpr unsigned kAsync = 32;    // in flight, of who does not wait for each
// One descriptor of a Sapphire Rapids device copies at most this (its GENCAP).
constexpr Bytes kMostBytes = 2_GiB;

constexpr Parameter kParameters[] = {
    {"part", ParameterKind::word},     {"method", ParameterKind::word},
    {"bytes", ParameterKind::count},   {"threads", ParameterKind::count},
    {"at_once", ParameterKind::count}, {"window", ParameterKind::count},
    {"from", ParameterKind::node},     {"to", ParameterKind::node},
    {"route", ParameterKind::word},    {"engines", ParameterKind::word},
    {"queue", ParameterKind::word},    {"group_engines", ParameterKind::any},
    {"beside", ParameterKind::word},
};

std::size_t repeats(Bytes bytes) {
  if (bytes == Bytes{0}) return kRepeatsOfNothing;
  return std::clamp<std::size_t>(kMovedPerTime / bytes, 1, kMostRepeats);
}

// Parameters of a row that its threads do not determine.
struct RowWords {
  std::string_view part;
  std::string_view method;
  std::string_view route = "one";
  std::string beside = "nothing";
};

// The row of `threads` threads in all, each like `thread`, by these engines.
Row row_of(const DsaScope& scope, const RowWords& words, const DsaThread& thread,
           std::size_t threads, const std::vector<EngineId>& engines, const DsaShape& shape) {
  std::vector<std::string> names;
  for (const EngineId id : engines) names.push_back(scope.machine().find(id)->name);
  const bool devices = words.route != "cores";
  Row row = make_row(
      "dsa", kParameters,
      {std::string(words.part), std::string(words.method), thread.bytes.value,
       std::uint64_t{threads}, std::uint64_t{thread.at_once}, std::uint64_t{thread.window},
       std::uint64_t{raw(thread.from)}, std::uint64_t{raw(thread.to)}, std::string(words.route),
       fmt::format("{}", fmt::join(names, " ")),
       !devices       ? ""
       : shape.shared ? "shared"
                      : "dedicated",
       shape.engines ? ParameterValue(std::uint64_t{*shape.engines}) : ParameterValue("any"),
       words.beside},
      "B/s");
  row.basis = scope.target.basis();
  row.details["copies"] = static_cast<double>(threads * thread.copies);
  return row;
}

// All threads alike, by one device.
DsaPoint devices_point(const DsaScope& scope, const DsaThread& thread, std::size_t threads,
                       std::string_view part, const DsaShape& shape = {}) {
  return {.row = row_of(scope, {.part = part, .method = to_string(thread.method)}, thread, threads,
                        {thread.engine}, shape),
          .threads = std::vector<DsaThread>(threads, thread),
          .shape = shape};
}

DsaPoint without_number(DsaPoint point, std::string reason) {
  point.kind = DsaPoint::Kind::nothing;
  point.row.reason = std::move(reason);
  return point;
}

// Copies within the first device's node, as Fürst 2024 does in 3.2.1 and 3.2.2.
DsaThread at_home(const DsaScope& scope, Bytes bytes) {
  return {.engine = scope.target.engines().front(),
          .from = scope.home(),
          .to = scope.home(),
          .bytes = bytes};
}

std::vector<Bytes> sizes_or(const DsaScope& scope, Bytes last, std::uint64_t factor) {
  std::vector<Bytes> sizes = scope.sizes;
  if (sizes.empty()) {
    for (Bytes size = 1_KiB; size <= last; size = size * factor) sizes.push_back(size);
  }
  return sizes;
}

// Returns the point; without a number if no device can copy its size at once.
DsaPoint possible(DsaPoint point) {
  const Bytes size{*point.row.number("bytes")};
  if (size.value > 0 && size <= kMostBytes) return point;
  return without_number(std::move(point), fmt::format("a copy of {}; ask for 1 byte to {}",
                                                      to_string(size), to_string(kMostBytes)));
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
      thread.copies = at_once * repeats(size * at_once);
      points.push_back(possible(devices_point(scope, thread, 1, "submission")));
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
  const auto [from, to] = ends;
  const DsaThread whole{.from = from, .to = to, .bytes = kMoved};
  const RowWords words{.part = "route", .method = "single", .route = policy};
  const auto route = (*place::route_policy(policy))(scope.machine(), {from, to, kMoved});
  if (!route) {
    return without_number({.row = row_of(scope, words, whole, 1, {}, {})}, route.error().message);
  }
  DsaPoint point;
  std::vector<EngineId> engines;
  for (const RoutePart& part : route->parts) {
    point.threads.push_back({.engine = part.engine, .from = from, .to = to, .bytes = part.length});
    engines.push_back(part.engine);
  }
  point.row = row_of(scope, words, whole, point.threads.size(), engines, {});
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

// Cores copy `bytes` between two nodes of this host, an equal part each.
DsaPoint cores_point(const DsaScope& scope, const Node& from, const Node& to, Bytes bytes,
                     std::size_t cores) {
  const DsaThread all{.from = from.id, .to = to.id, .bytes = bytes};
  DsaPoint point{.kind = DsaPoint::Kind::cores,
                 .row = row_of(scope, {.part = "cpu", .method = "cores", .route = "cores"}, all,
                               cores, {}, {})};
  point.row.basis = Basis::measured;
  const CpuSet cpus = usable_cpus(&from);
  if (cpus.size() < cores) {
    return without_number(std::move(point),
                          fmt::format("{} cores asked for, but this process may use {} of node {}",
                                      cores, cpus.size(), raw(from.id)));
  }
  point.cores = {.engine = "cpu",
                 .cpu_node = &from,
                 .from = &from,
                 .to = &to,
                 .bytes = bytes / cores,
                 .cpus = CpuSet(cpus.begin(), cpus.begin() + static_cast<std::ptrdiff_t>(cores))};
  return point;
}

DsaPoint between_nodes(const DsaScope& scope, std::pair<NodeId, NodeId> ends, std::size_t cores) {
  const Node& from = *scope.machine().find(ends.first);
  const Node& to = *scope.machine().find(ends.second);
  return cores_point(scope, from, to, kMoved, cores);
}

std::vector<DsaPoint> dsa_cpu_points(const DsaScope& scope) {
  std::vector<DsaPoint> points;
  if (!scope.with_cpu) return points;
  // The cores of the device's node copy.
  const Node* const home = scope.host.find(scope.home());
  for (const Bytes size : sizes_or(scope, 256_MiB, 4)) {
    if (home != nullptr) points.push_back(possible(cores_point(scope, *home, *home, size, 1)));
    for (const std::size_t window : {1U, kAsync}) {
      DsaThread thread = at_home(scope, size);
      thread.window = window;
      thread.copies = window * repeats(size * window);
      points.push_back(possible(devices_point(scope, thread, 1, "cpu")));
    }
  }
  const std::size_t all = scope.machine().find(scope.home())->cpus.size();
  for (const auto& pair : dsa_pairs(scope)) {
    points.push_back(between_nodes(scope, pair, 1));
    if (all > 1) points.push_back(between_nodes(scope, pair, all));
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
          thread.copies = depth * repeats(size * depth);
          points.push_back(
              devices_point(scope, thread, 1, "queue", {.engines = engines, .shared = shared}));
        }
      }
    }
  }
  return points;
}

// One thread's copies of 1 MiB, with some always in flight, while other threads do the same.
DsaPoint interference_point(const DsaScope& scope, std::size_t others, bool own_devices) {
  const auto [from, to] = dsa_pairs(scope).front();
  const std::vector<EngineId> engines = scope.target.engines();
  const DsaThread thread{.engine = engines.front(),
                         .from = from,
                         .to = to,
                         .bytes = 1_MiB,
                         .copies = kCopies,
                         .window = 8};
  RowWords words{.part = "interference", .method = "single"};
  if (others > 0) {
    words.beside = fmt::format("{} more by {}", others,
                               own_devices ? "devices of their own" : "the same device");
  }
  DsaPoint point{.threads = std::vector<DsaThread>(1 + others, thread), .first_alone = true};
  std::vector<EngineId> used{thread.engine};
  for (std::size_t i = 1; own_devices && i <= others; ++i) {
    point.threads[i].engine = engines[i];
    used.push_back(engines[i]);
  }
  point.row = row_of(scope, words, thread, 1 + others, used, {});
  return point;
}

DsaPoint stream_point(const DsaScope& scope, bool of_stream) {
  DsaPoint point = interference_point(scope, 0, false);
  const RowWords words{.part = "interference",
                       .method = of_stream ? "stream" : "single",
                       .beside = of_stream ? "1 copy by a device" : "STREAM triad"};
  const DsaThread& thread = point.threads.front();
  point.row = row_of(scope, words, thread, 1, {thread.engine}, {});
  point.kind = DsaPoint::Kind::stream;
  point.of_stream = of_stream;
  return point;
}

std::vector<DsaPoint> dsa_interference_points(const DsaScope& scope) {
  std::vector<DsaPoint> points;
  for (const std::size_t others : {0U, 1U, 3U}) {
    points.push_back(interference_point(scope, others, false));
  }
  for (const std::size_t others : {1U, 3U, 7U}) {
    const bool enough = others < scope.target.engines().size();
    if (enough) points.push_back(interference_point(scope, others, true));
  }
  for (const bool of_stream : {false, true}) points.push_back(stream_point(scope, of_stream));
  return points;
}

}  // namespace

std::span<const Parameter> dsa_parameters() { return kParameters; }

std::vector<DsaPoint> dsa_points(const DsaScope& scope) {
  std::vector<DsaPoint> all;
  for (const auto part : {dsa_submission_points, dsa_threads_points, dsa_route_points,
                          dsa_cpu_points, dsa_queue_points, dsa_interference_points}) {
    for (DsaPoint& point : part(scope)) all.push_back(std::move(point));
  }
  return all;
}

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
    const Node* node = scope.machine().find(static_cast<NodeId>(to));
    if (node != nullptr && node->kind == NodeKind::hbm) pairs.emplace_back(scope.home(), node->id);
  }
  if (!pairs.empty()) return pairs;
  for (const Node& node : scope.machine().nodes) {
    const bool other = node.byte_addressable() && node.id != scope.home();
    if (other) pairs.emplace_back(scope.home(), node.id);
  }
  if (pairs.empty()) pairs.emplace_back(scope.home(), scope.home());
  return pairs;
}

}  // namespace headrace::experiment_dsa
