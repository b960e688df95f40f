// SPDX-License-Identifier: Apache-2.0
// The four kernels of STREAM (McCalpin), each array on its own node: copy c = a, scale b = s c, add
// c = a + b, triad a = b + s c.
//
// Each kernel has plain stores, and as nt_copy ... nt_triad stores around the caches, in the widest
// vectors of the CPU. Bytes count as in STREAM: 16 per element for copy and scale, 24 for add and
// triad, without the reads that plain stores cause (write-allocate). The detail `bus` includes
// these, and `bus_counted` is the counted bus traffic, where there is a counter (bus_counter.h).
// Each array has at least four times the size of all caches in use. After each timing the written
// array is checked. This is not McCalpin's program, and its results are not "STREAM results" in the
// sense of its licence.
//
// All threads run on one node; each array may be on any. By default the arrays are on the nearest
// node of each kind; a request for the node of an array lists every combination. Beside these, the
// CPUs of a socket and of the machine work together (teams.h), each on its parts of arrays in
// memory near it, far from it, or interleaved over all nodes of a kind.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "core/fail.h"
#include "headrace/clock.h"
#include "headrace/measure.h"
#include "measure/experiments/experiments.h"
#include "measure/experiments/teams.h"
#include "measure/instruments/traffic/kernels_stream.h"
#include "measure/instruments/traffic/kernels_traffic.h"
#include "measure/instruments/worker_pool.h"

namespace headrace::experiment_stream {

using namespace session;
using instruments::kStreamScalar, instruments::stream_loop, instruments::StreamLoop,
    instruments::StreamOperation;

namespace {

constexpr std::string_view kName = "stream";
constexpr Parameter kParameters[] = {
    {"cpu_node", ParameterKind::node, false},
    {"kernel", ParameterKind::word},
    {"a", ParameterKind::node},
    {"b", ParameterKind::node},
    {"c", ParameterKind::node},
    {"threads", ParameterKind::any, false},
    kOn,
    kPlaced,
    kOrder,
};
// Parameters of rows of a node's CPUs.
constexpr auto kOfNodes = std::span(kParameters).first<6>();

constexpr Bytes kLeastArray = 32_MiB;

StreamArrays stream_part(const StreamArrays& all, std::size_t index, std::size_t parts) {
  const std::size_t each = all.a.size() / parts;
  const auto cut = [&](std::span<double> array) { return array.subspan(index * each, each); };
  return {cut(all.a), cut(all.b), cut(all.c)};
}

// The arrays of each thread.
using StreamParts = std::vector<StreamArrays>;

StreamParts stream_parts(const StreamArrays& all, std::size_t parts) {
  StreamParts found;
  for (std::size_t i = 0; i < parts; ++i) found.push_back(stream_part(all, i, parts));
  return found;
}

struct StreamKernel {
  std::string_view name;
  StreamOperation operation;
  bool around;   // stores around the caches
  double bytes;  // per element
  double bus;    // with the write-allocates
  std::span<double> StreamArrays::* read;
  std::span<double> StreamArrays::* other;
  // The written array, its value before, and its value after if a = 1, b = 2, c = 4 before.
  std::span<double> StreamArrays::* written;
  double before;
  double expected;
};

using enum StreamOperation;
constexpr auto kA = &StreamArrays::a;
constexpr auto kB = &StreamArrays::b;
constexpr auto kC = &StreamArrays::c;
constexpr std::array kKernels = {
    StreamKernel{"copy", copy, false, 16, 24, kA, kA, kC, 4, 1},
    StreamKernel{"scale", scale, false, 16, 24, kC, kC, kB, 2, kStreamScalar * 4},
    StreamKernel{"add", add, false, 24, 32, kA, kB, kC, 4, 3},
    StreamKernel{"triad", triad, false, 24, 32, kB, kC, kA, 1, 2 + kStreamScalar * 4},
    StreamKernel{"nt_copy", copy, true, 16, 16, kA, kA, kC, 4, 1},
    StreamKernel{"nt_scale", scale, true, 16, 16, kC, kC, kB, 2, kStreamScalar * 4},
    StreamKernel{"nt_add", add, true, 24, 24, kA, kB, kC, 4, 3},
    StreamKernel{"nt_triad", triad, true, 24, 24, kB, kC, kA, 1, 2 + kStreamScalar * 4},
};

void run_part(const StreamKernel& kernel, const StreamArrays& part) {
  const StreamLoop loop =
      stream_loop(kernel.operation, kernel.around, instruments::vector_widths().front());
  loop((part.*kernel.written).data(), (part.*kernel.read).data(), (part.*kernel.other).data(),
       part.a.size());
}

Status check_stream(const StreamKernel& kernel, const StreamParts& parts) {
  for (const StreamArrays& part : parts) {
    for (const double value : part.*kernel.written) {
      if (value == kernel.expected) continue;
      return fail(ErrorCode::io, "{} left {} where {} must be; test the memory of this machine",
                  kernel.name, value, kernel.expected);
    }
  }
  return {};
}

Status fill_parts(const StreamParts& parts, const CpuSet& cpus) {
  return instruments::run_pinned(cpus, [&](std::size_t i) {
    std::ranges::fill(parts[i].a, 1);
    std::ranges::fill(parts[i].b, 2);
    std::ranges::fill(parts[i].c, 4);
  });
}

struct CountedRun {
  StreamRun run;
  std::optional<double> on_bus = {};  // bytes
};

Result<CountedRun> run_kernel(const StreamKernel& kernel, const StreamParts& parts,
                              const CpuSet& cpus, BusMeter& bus) {
  std::vector<Nanoseconds> begin(cpus.size());
  std::vector<Nanoseconds> end(cpus.size());
  const BusMeter::Window window(bus);
  HEADRACE_TRY(const double share, run_together(cpus, [&](std::size_t i) {
                 begin[i] = system_clock().now();
                 run_part(kernel, parts[i]);
                 end[i] = system_clock().now();
               }));
  const std::optional<double> counted = window.bytes();
  HEADRACE_TRY_STATUS(check_stream(kernel, parts));
  std::uint64_t elements = 0;
  for (const StreamArrays& part : parts) elements += part.a.size();
  // Timed as STREAM does: from the start of the first thread to the end of the last.
  return CountedRun{{.bytes = Bytes{elements * static_cast<std::uint64_t>(kernel.bytes)},
                     .time = std::ranges::max(end) - std::ranges::min(begin),
                     .cpu_share = share},
                    counted};
}

class Stream final : public Probe {
 public:
  Stream(const StreamKernel& kernel, CpuSet cpus, StreamParts parts, std::shared_ptr<BusMeter> bus)
      : kernel_(kernel), cpus_(std::move(cpus)), parts_(std::move(parts)), bus_(std::move(bus)) {}

  Result<Sample> sample() override {
    HEADRACE_TRY_STATUS(fill());
    HEADRACE_TRY(const CountedRun counted, run_kernel(kernel_, parts_, cpus_, *bus_));
    const StreamRun& run = counted.run;
    const auto bytes = static_cast<double>(run.bytes.value);
    const double rate = bytes / seconds(run.time);
    Sample sample{.value = rate,
                  .details = {{"bus", rate / kernel_.bytes * kernel_.bus}},
                  .cpu_share = run.cpu_share};
    add_counted(sample, *bus_, counted.on_bus, bytes, rate);
    return sample;
  }

 private:
  // Before the first repetition fills all arrays, which other kernels may have written; later only
  // the array that this one writes.
  Status fill() {
    if (!std::exchange(filled_, true)) return fill_parts(parts_, cpus_);
    return run_pinned(cpus_, [&](std::size_t i) {
      std::ranges::fill(parts_[i].*kernel_.written, kernel_.before);
    });
  }

  const StreamKernel& kernel_;
  const CpuSet cpus_;
  const StreamParts parts_;
  const std::shared_ptr<BusMeter> bus_;
  bool filled_ = false;
};

std::span<double> doubles(std::span<std::byte> memory) {
  return {reinterpret_cast<double*>(memory.data()), memory.size() / sizeof(double)};
}

// The node of the threads, and that of each array.
struct StreamNodes {
  const Node* threads;
  const Node* a;
  const Node* b;
  const Node* c;
};

Row stream_row(const StreamKernel& kernel, const StreamNodes& nodes, const CpuSet& cpus) {
  return make_row(kName, kOfNodes,
                  {id_of(nodes.threads), std::string(kernel.name), id_of(nodes.a), id_of(nodes.b),
                   id_of(nodes.c), std::uint64_t{cpus.size()}},
                  "B/s");
}

// Estimate with about 4 GB/s per CPU; more than eight add little. Three arrays are filled once.
// Three times, the written array is filled, the kernel runs over all, and one CPU checks one array.
Nanoseconds stream_cost(Bytes array, std::size_t cpus) {
  const double together = 4.0 * static_cast<double>(std::clamp<std::size_t>(cpus, 1, 8));
  const double each = static_cast<double>(array.value);
  return Nanoseconds{
      static_cast<std::int64_t>(3 * each / together + 3 * (4 * each / together + each / 8))};
}

Point stream_point(const Scope& scope, const StreamKernel& kernel, const StreamNodes& nodes,
                   const CpuSet& cpus, unsigned rank) {
  Point point;
  point.rank = rank;
  point.memory = {nodes.a->id, PageSize::transparent};
  point.row = stream_row(kernel, nodes, cpus);
  point.row.cpus = to_string(cpus);
  const bool near = std::ranges::all_of(
      std::array{nodes.a, nodes.b, nodes.c},
      [&](const Node* node) { return is_near(scope.machine, *nodes.threads, *node); });
  if (near) stand_for_team(point.row, scope, *nodes.threads);
  const Bytes wanted = past_caches(point.row, scope.machine, cpus, kCachesPassed, kLeastArray);
  // Arrays of equal length: as long as the smallest of the nodes allows.
  Bytes bytes = wanted;
  for (const Node* node : {nodes.a, nodes.b, nodes.c}) bytes = fitting(*node, bytes);
  if (bytes < wanted) point.row.add_flag("shrunk");
  for (const Node* node : {nodes.a, nodes.b, nodes.c}) mark_side_cached(point.row, *node, bytes);
  point.cost = stream_cost(bytes, cpus.size());
  point.setup = {
      .name = fmt::format("stream {} {} {}", raw(nodes.a->id), raw(nodes.b->id), raw(nodes.c->id)),
      .cost = touching(bytes * 3, cpus.size())};
  point.prepare = [&kernel, nodes, cpus, bytes,
                   bus = scope.bus_of({nodes.a->id, nodes.b->id, nodes.c->id})](
                      BufferPool& buffers, Random&) -> Result<std::unique_ptr<Probe>> {
    const auto on = [&](const Node* node, std::size_t index) {
      return buffers.get({node->id, PageSize::transparent}, index, bytes);
    };
    HEADRACE_TRY(const auto a, on(nodes.a, 0));
    HEADRACE_TRY(const auto b, on(nodes.b, 1));
    HEADRACE_TRY(const auto c, on(nodes.c, 2));
    const StreamArrays arrays{doubles(a), doubles(b), doubles(c)};
    return std::make_unique<Stream>(kernel, cpus, stream_parts(arrays, cpus.size()), bus);
  };
  return point;
}

// The memory nodes of each array of a team.
struct TeamArrays {
  TeamNodes a;
  TeamNodes b;
  TeamNodes c;
};

std::vector<NodeId> all_nodes(const TeamArrays& arrays) {
  std::vector<NodeId> all;
  for (const TeamNodes* nodes : {&arrays.a, &arrays.b, &arrays.c}) {
    all.insert(all.end(), nodes->all.begin(), nodes->all.end());
  }
  return all;
}

Result<StreamParts> prepare_parts(BufferPool& buffers, const TeamArrays& arrays, std::size_t cpus,
                                  Bytes bytes) {
  HEADRACE_TRY(const auto a, team_parts(buffers, arrays.a, cpus, 0, bytes));
  HEADRACE_TRY(const auto b, team_parts(buffers, arrays.b, cpus, 1, bytes));
  HEADRACE_TRY(const auto c, team_parts(buffers, arrays.c, cpus, 2, bytes));
  StreamParts parts;
  for (std::size_t i = 0; i < cpus; ++i) {
    parts.push_back({doubles(a[i]), doubles(b[i]), doubles(c[i])});
  }
  return parts;
}

Point team_point(const Scope& scope, const StreamKernel& kernel, const MeasuredTeam& measured,
                 const TeamArrays& arrays, unsigned rank) {
  const std::size_t threads = measured.team.cpus.size();
  Point point;
  point.rank = rank;
  point.memory = {arrays.a.all.front(), PageSize::transparent};
  point.row = team_row(
      make_row(kName, kOfNodes,
               {list_of(measured.team.nodes()), std::string(kernel.name), list_of(arrays.a.all),
                list_of(arrays.b.all), list_of(arrays.c.all), std::uint64_t{threads}},
               "B/s"),
      measured, arrays.a.how);
  Bytes bytes =
      past_caches(point.row, scope.machine, measured.team.sorted(), kCachesPassed, kLeastArray);
  for (const TeamNodes* nodes : {&arrays.a, &arrays.b, &arrays.c}) {
    bytes = fit_team(point.row, scope, *nodes, threads, bytes);
  }
  point.cost = stream_cost(bytes, threads);
  point.setup = {.name = fmt::format("stream {} {} {} by {}", list_of(arrays.a.all),
                                     list_of(arrays.b.all), list_of(arrays.c.all), point.row.cpus),
                 .cost = touching(bytes * 3, threads)};
  point.prepare = [&kernel, arrays, cpus = measured.team.cpus, bytes = bytes / threads,
                   bus = scope.bus_of(all_nodes(arrays))](
                      BufferPool& buffers, Random&) -> Result<std::unique_ptr<Probe>> {
    HEADRACE_TRY(auto parts, prepare_parts(buffers, arrays, cpus.size(), bytes));
    return std::make_unique<Stream>(kernel, cpus, std::move(parts), bus);
  };
  return point;
}

// The triad first, which is the one quoted. With a budget too small for four kernels, another kind
// of memory is worth more than the other kernels.
unsigned rank_of(const StreamKernel& kernel, bool mixed) {
  if (mixed) return kernel.around ? 5 : 4;
  return kernel.operation == triad && !kernel.around ? 1 : 2;
}

// First all arrays in one kind, the machine before sockets; then mixed kinds.
unsigned rank_of_team(const StreamKernel& kernel, const MeasuredTeam& measured, TeamMemory how,
                      bool mixed) {
  const unsigned around = kernel.around ? 1 : 0;
  if (!measured.whole) return 4 + around;
  if (how != TeamMemory::near || mixed) return 3 + around;
  return rank_of(kernel, mixed) + (measured.part == TeamPart::machine ? 0 : 1);
}

// Stores around the caches are measured with all arrays in one place; elsewhere only on request.
bool left_out(const Scope& scope, bool mixed) { return mixed && !scope.asks("kernel"); }

void list_team(const Scope& scope, const MeasuredTeam& measured, TeamMemory how,
               std::vector<Point>& points) {
  std::vector<TeamNodes> choices;
  for (const NodeKind kind : kinds_of_memory(scope.machine)) {
    if (auto nodes = team_nodes(scope.machine, measured.team, kind, how)) {
      choices.push_back(*std::move(nodes));
    }
  }
  for (const TeamNodes& a : choices) {
    for (const TeamNodes& b : choices) {
      for (const TeamNodes& c : choices) {
        const bool mixed = a.all != b.all || b.all != c.all;
        if (mixed && (!measured.whole || how != TeamMemory::near)) continue;
        for (const StreamKernel& kernel : kKernels) {
          if (kernel.around && left_out(scope, mixed)) continue;
          points.push_back(team_point(scope, kernel, measured, {a, b, c},
                                      rank_of_team(kernel, measured, how, mixed)));
        }
      }
    }
  }
}

void list_teams(const Scope& scope, std::vector<Point>& points) {
  for (const MeasuredTeam& measured : measured_teams(scope)) {
    const bool small = measured.part == TeamPart::cluster || measured.part == TeamPart::core;
    if (small && !scope.asks("on")) continue;
    if (measured.order && !scope.asks("order")) continue;  // `bandwidth` measures these
    for (const TeamMemory how : {TeamMemory::near, TeamMemory::interleave, TeamMemory::far}) {
      if (how == TeamMemory::near || !measured.order) list_team(scope, measured, how, points);
    }
  }
}

// The working CPUs of a node: all, or as many as requested.
std::vector<CpuSet> teams_of(const Scope& scope, const Node& node) {
  std::vector<CpuSet> teams;
  for (const std::uint64_t threads : scope.numbers("threads")) {
    const std::vector<unsigned> order = spread_order(scope.machine, node);
    if (threads > 0 && threads <= order.size()) teams.push_back(first_of(order, threads));
  }
  if (teams.empty()) teams.push_back(usable_cpus(&node));
  return teams;
}

std::vector<Point> list_points(const Scope& scope) {
  const Machine& machine = scope.machine;
  // If the node of an array is requested, each array may be on any node.
  const bool asked = scope.asks("a") || scope.asks("b") || scope.asks("c");
  std::vector<Point> points;
  for (const Node* node : nodes_with_cpus(machine)) {
    const std::vector<CpuSet> teams = teams_of(scope, *node);
    const auto choices = asked ? memory_nodes(machine) : one_of_each_kind(machine, *node);
    for (const Node* a : choices) {
      for (const Node* b : choices) {
        for (const Node* c : choices) {
          const bool mixed = a != b || b != c;
          for (const StreamKernel& kernel : kKernels) {
            const StreamNodes nodes{.threads = node, .a = a, .b = b, .c = c};
            if (kernel.around && left_out(scope, mixed)) continue;
            for (const CpuSet& cpus : teams) {
              if (!scope.wants(stream_row(kernel, nodes, cpus), kParameters)) continue;
              points.push_back(stream_point(scope, kernel, nodes, cpus, rank_of(kernel, mixed)));
            }
          }
        }
      }
    }
  }
  list_teams(scope, points);
  return points;
}

}  // namespace

const Experiment kExperiment{kName,       "STREAM's four kernels, each array where it is asked for",
                             kParameters, {},
                             list_points, 2,
                             true};

}  // namespace headrace::experiment_stream

namespace headrace {

std::vector<std::string> stream_kernels() {
  std::vector<std::string> names;
  for (const experiment_stream::StreamKernel& kernel : experiment_stream::kKernels)
    names.emplace_back(kernel.name);
  return names;
}

Status stream_fill(const StreamArrays& arrays, const CpuSet& cpus) {
  if (cpus.empty() || arrays.a.size() != arrays.b.size() || arrays.a.size() != arrays.c.size() ||
      arrays.a.size() < cpus.size()) {
    return fail(ErrorCode::invalid,
                "arrays of {}, {} and {} doubles for {} threads; give three of one length and a "
                "CPU for each thread",
                arrays.a.size(), arrays.b.size(), arrays.c.size(), cpus.size());
  }
  return experiment_stream::fill_parts(experiment_stream::stream_parts(arrays, cpus.size()), cpus);
}

Result<StreamRun> stream_run(std::string_view name, const StreamArrays& arrays,
                             const CpuSet& cpus) {
  const auto kernel =
      std::ranges::find(experiment_stream::kKernels, name, &experiment_stream::StreamKernel::name);
  if (kernel == experiment_stream::kKernels.end()) {
    return fail(ErrorCode::invalid, "no kernel '{}'; there are {}", name,
                fmt::join(stream_kernels(), ", "));
  }
  if (cpus.empty()) return fail(ErrorCode::invalid, "no CPU to run on; give one for each thread");
  instruments::BusMeter nobody;
  HEADRACE_TRY(const auto counted,
               experiment_stream::run_kernel(
                   *kernel, experiment_stream::stream_parts(arrays, cpus.size()), cpus, nobody));
  return counted.run;
}

}  // namespace headrace
