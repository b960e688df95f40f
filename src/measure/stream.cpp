// The four kernels of STREAM (McCalpin), each array on a node of its own.
//
//   copy: c = a      scale: b = s c      add: c = a + b      triad: a = b + s c
//
// Counting as STREAM does: 16 bytes per element for copy and scale, 24 for add and triad, stores
// not fetched first; `bus` adds the write-allocates. Arrays hold at least
// four times the caches of the team each. After each timing the arrays are checked against what the
// kernel must have left. Not McCalpin's program, and its results are not "STREAM results" in the
// sense of its licence. Plain loops that the compiler makes vectors of. The threads are those of
// one node, each array on any; naming a node of an array lists every combination.
#include <algorithm>
#include <array>
#include <cmath>

#include "core/fail.h"
#include "headrace/clock.h"
#include "headrace/measure.h"
#include "measure/experiment.h"
#include "measure/team.h"

namespace headrace {
namespace {

constexpr std::uint64_t kCachesPerArray = 4;
constexpr Bytes kLeastArray = 32_MiB;
constexpr double kScalar = 3;

StreamArrays stream_part(const StreamArrays& all, std::size_t index, std::size_t parts) {
  const std::size_t each = all.a.size() / parts;
  const auto cut = [&](std::span<double> array) { return array.subspan(index * each, each); };
  return {cut(all.a), cut(all.b), cut(all.c)};
}

struct StreamKernel {
  std::string_view name;
  double bytes;  // per element
  double bus;    // with the write-allocate
  void (*run)(const StreamArrays& arrays);
  // From a = 1, b = 2, c = 4: which array, and what it must hold.
  std::span<double> StreamArrays::* written;
  double expected;
};

// Not to be made a call of memcpy, which does not fetch what it overwrites and would be counted by
// another rule than the three others.
#if defined(__clang__)
#define HEADRACE_AS_WRITTEN __attribute__((no_builtin("memcpy")))
#else
#define HEADRACE_AS_WRITTEN __attribute__((optimize("no-tree-loop-distribute-patterns")))
#endif

// restrict: the arrays do not overlap, and the compiler is to know.
HEADRACE_AS_WRITTEN void stream_copy(const StreamArrays& x) {
  const double* __restrict a = x.a.data();
  double* __restrict c = x.c.data();
  for (std::size_t i = 0; i < x.a.size(); ++i) c[i] = a[i];
}
void stream_scale(const StreamArrays& x) {
  const double* __restrict c = x.c.data();
  double* __restrict b = x.b.data();
  for (std::size_t i = 0; i < x.a.size(); ++i) b[i] = kScalar * c[i];
}
void stream_add(const StreamArrays& x) {
  const double* __restrict a = x.a.data();
  const double* __restrict b = x.b.data();
  double* __restrict c = x.c.data();
  for (std::size_t i = 0; i < x.a.size(); ++i) c[i] = a[i] + b[i];
}
void stream_triad(const StreamArrays& x) {
  const double* __restrict b = x.b.data();
  const double* __restrict c = x.c.data();
  double* __restrict a = x.a.data();
  for (std::size_t i = 0; i < x.a.size(); ++i) a[i] = b[i] + kScalar * c[i];
}

const std::array kKernels = {
    StreamKernel{"copy", 16, 24, stream_copy, &StreamArrays::c, 1},
    StreamKernel{"scale", 16, 24, stream_scale, &StreamArrays::b, kScalar * 4},
    StreamKernel{"add", 24, 32, stream_add, &StreamArrays::c, 3},
    StreamKernel{"triad", 24, 32, stream_triad, &StreamArrays::a, 2 + kScalar * 4},
};

Status check_stream(const StreamKernel& kernel, const StreamArrays& arrays, std::size_t threads) {
  for (std::size_t i = 0; i < threads; ++i) {
    const StreamArrays part = stream_part(arrays, i, threads);
    for (const double value : part.*kernel.written) {
      if (value == kernel.expected) continue;
      return fail(ErrorCode::io, "{} left {} where {} must be; test the memory of this machine",
                  kernel.name, value, kernel.expected);
    }
  }
  return {};
}

Result<StreamRun> run_kernel(const StreamKernel& kernel, const StreamArrays& arrays,
                             const CpuSet& cpus) {
  std::vector<Nanoseconds> begin(cpus.size());
  std::vector<Nanoseconds> end(cpus.size());
  HEADRACE_TRY(const double share, run_together(cpus, [&](std::size_t i) {
                 const StreamArrays mine = stream_part(arrays, i, cpus.size());
                 begin[i] = system_clock().now();
                 kernel.run(mine);
                 end[i] = system_clock().now();
               }));
  HEADRACE_TRY_STATUS(check_stream(kernel, arrays, cpus.size()));
  const std::uint64_t elements = arrays.a.size() / cpus.size() * cpus.size();
  // As STREAM: from the first start to the last end, since all must be done.
  return StreamRun{.bytes = Bytes{elements * static_cast<std::uint64_t>(kernel.bytes)},
                   .time = std::ranges::max(end) - std::ranges::min(begin),
                   .cpu_share = share};
}

class Stream final : public Probe {
 public:
  Stream(const StreamKernel& kernel, CpuSet cpus, StreamArrays arrays)
      : kernel_(kernel), cpus_(std::move(cpus)), arrays_(arrays) {}

  Result<Sample> sample() override {
    HEADRACE_TRY_STATUS(stream_fill(arrays_, cpus_));
    HEADRACE_TRY(const StreamRun run, run_kernel(kernel_, arrays_, cpus_));
    const double rate = static_cast<double>(run.bytes.value) / seconds(run.time);
    return Sample{.value = rate,
                  .details = {{"bus", rate / kernel_.bytes * kernel_.bus}},
                  .cpu_share = run.cpu_share};
  }

 private:
  const StreamKernel& kernel_;
  const CpuSet cpus_;
  const StreamArrays arrays_;
};

std::span<double> doubles(std::span<std::byte> memory) {
  return {reinterpret_cast<double*>(memory.data()), memory.size() / sizeof(double)};
}

struct Homes {
  const Node* threads;
  const Node* a;
  const Node* b;
  const Node* c;
};

Row stream_row(const StreamKernel& kernel, const Homes& homes, const CpuSet& cpus) {
  const auto id = [](const Node* node) { return std::uint64_t{raw(node->id)}; };
  return {.experiment = "stream",
          .parameters = {{"cpu_node", id(homes.threads)},
                         {"kernel", std::string(kernel.name)},
                         {"a", id(homes.a)},
                         {"b", id(homes.b)},
                         {"c", id(homes.c)},
                         {"threads", std::uint64_t{cpus.size()}}},
          .unit = "B/s"};
}

Point stream_point(const StreamKernel& kernel, const Homes& homes, const CpuSet& cpus, Bytes wanted,
                   unsigned rank) {
  Point point;
  point.rank = rank;
  point.memory = {homes.a->id, PageSize::transparent};
  point.row = stream_row(kernel, homes, cpus);
  // Of equal length: what the smallest of the nodes allows.
  Bytes bytes = wanted;
  for (const Node* node : {homes.a, homes.b, homes.c}) bytes = fitting(*node, bytes);
  if (bytes < wanted) point.row.flags.emplace_back("shrunk");
  // Filling, running and checking three arrays, some 10 GB/s each.
  point.cost = Nanoseconds{static_cast<std::int64_t>(bytes.value) * 3 * 3 / 5};
  point.prepare = [&kernel, homes, cpus, bytes](Arenas& arenas,
                                                Random&) -> Result<std::unique_ptr<Probe>> {
    const auto on = [&](const Node* node, std::size_t index) {
      return arenas.get({node->id, PageSize::transparent}, index, bytes);
    };
    HEADRACE_TRY(const auto a, on(homes.a, 0));
    HEADRACE_TRY(const auto b, on(homes.b, 1));
    HEADRACE_TRY(const auto c, on(homes.c, 2));
    return std::make_unique<Stream>(kernel, cpus, StreamArrays{doubles(a), doubles(b), doubles(c)});
  };
  return point;
}

}  // namespace

std::vector<Point> stream_points(const Scope& scope) {
  const Machine& machine = scope.machine;
  // Which arrays are where is asked for: then any node can have each.
  const bool asked = scope.asks("a") || scope.asks("b") || scope.asks("c");
  std::vector<Point> points;
  for (const Node* node : nodes_with_cpus(machine)) {
    const CpuSet cpus = usable_cpus(node);
    const Bytes bytes = std::max(cache_to_pass(machine, cpus) * kCachesPerArray, kLeastArray);
    const auto homes = asked ? memory_nodes(machine) : one_of_each_kind(machine, *node);
    for (const Node* a : homes) {
      for (const Node* b : homes) {
        for (const Node* c : homes) {
          const bool mixed = a != b || b != c;
          for (const StreamKernel& kernel : kKernels) {
            const Homes arrays{.threads = node, .a = a, .b = b, .c = c};
            if (!scope.wants(stream_row(kernel, arrays, cpus))) continue;
            points.push_back(stream_point(kernel, arrays, cpus, bytes, mixed ? 4 : 1));
          }
        }
      }
    }
  }
  return points;
}

std::vector<std::string> stream_kernels() {
  std::vector<std::string> names;
  for (const StreamKernel& kernel : kKernels) names.emplace_back(kernel.name);
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
  return run_pinned(cpus, [&](std::size_t i) {
    const StreamArrays mine = stream_part(arrays, i, cpus.size());
    std::ranges::fill(mine.a, 1);
    std::ranges::fill(mine.b, 2);
    std::ranges::fill(mine.c, 4);
  });
}

Result<StreamRun> stream_run(std::string_view name, const StreamArrays& arrays,
                             const CpuSet& cpus) {
  const auto kernel = std::ranges::find(kKernels, name, &StreamKernel::name);
  if (kernel == kKernels.end()) {
    return fail(ErrorCode::invalid, "no kernel '{}'; there are copy, scale, add, triad", name);
  }
  if (cpus.empty()) return fail(ErrorCode::invalid, "no CPU to run on; give one for each thread");
  return run_kernel(*kernel, arrays, cpus);
}

}  // namespace headrace
