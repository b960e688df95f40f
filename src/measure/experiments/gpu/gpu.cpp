// SPDX-License-Identifier: Apache-2.0
// GPUs: copies to and from the host's memory, between GPUs and inside one, by copy engine,
// multiprocessors or the driver's prefetching; the cost of submitting small copies; latencies; and
// the time to allocate pinned memory.
//
// A row's `node` is the memory on the other side: a host node, another GPU, or the GPU itself. The
// values:
// - `copy`: payload per second, for both directions at once their sum.
// - `fragments` (runs of adjacent ones): payload per second.
// - `batch`: the calling thread's time per copy.
// - `latency`: time per dependent load in 2 MiB of the host, as nvbandwidth has it, and in memory
//   so large that caches of the GPU and the host (`l2_bytes`) keep little of it.
// - `allocation`: time per MiB.
//
// All sizes are listed for the nearest host node, two for the others; requested nodes or sizes
// replace these. Without a GPU, one row gives the reason.
#include "measure/experiments/gpu/gpu.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "core/fail.h"
#include "measure/experiments/gpu/parts.h"

namespace headrace::experiment_gpu {

using namespace session;

namespace {

constexpr std::string_view kName = "gpu";
constexpr Parameter kParameters[] = {
    {"part", ParameterKind::word},
    {"direction", ParameterKind::word},
    {"gpu", ParameterKind::node},
    {"node", ParameterKind::node},
    {"by", ParameterKind::word},
    {"memory", ParameterKind::word},
    {"bytes", ParameterKind::count, false},
    {"count", ParameterKind::count, false},
};

constexpr std::array kCopySizes = {4_KiB, 64_KiB, 1_MiB, 16_MiB, 64_MiB, 256_MiB};
constexpr Bytes kUsualSize = 64_MiB;
// For the other nodes: the fixed cost of a copy, and its rate.
constexpr std::array kFarSizes = {4_KiB, kUsualSize};
constexpr std::array kFragments = {4_KiB, 16_KiB, 64_KiB};
constexpr std::array<std::uint64_t, 5> kCounts = {1, 16, 64, 256, 1024};
constexpr std::uint64_t kOfRun = 16;  // fragments per run
constexpr std::array kAllocated = {64_MiB, 1_GiB};
constexpr Bytes kSmallChase = 2_MiB;  // as nvbandwidth's

// Time for a workspace and three samples; the bytes that are verified add to it at about 300 MB/s.
// Host memory is pinned once for all points of a node.
constexpr Nanoseconds kMapping = std::chrono::milliseconds{50};

// Keeps sizes times counts within 64 bits; no GPU has as much.
constexpr Bytes kMostBytes = 1024_GiB;
constexpr std::uint64_t kMostAtOnce = 1 << 20;

using GpuTargets = std::vector<std::shared_ptr<GpuTarget>>;

class PointList {
 public:
  explicit PointList(const Scope& scope) : scope_(scope) {}

  void add_gpu(const std::shared_ptr<GpuTarget>& gpu, const GpuTargets& all);
  std::vector<Point> take() { return std::move(points_); }

 private:
  template <std::size_t n>
  std::vector<Bytes> sizes(const std::array<Bytes, n>& usual) const {
    std::vector<Bytes> found;
    for (const std::uint64_t bytes : scope_.numbers("bytes")) found.push_back(Bytes{bytes});
    if (found.empty()) found.assign(usual.begin(), usual.end());
    return found;
  }

  std::vector<std::uint64_t> counts(std::vector<std::uint64_t> usual) const {
    std::vector<std::uint64_t> asked = scope_.numbers("count");
    return asked.empty() ? std::move(usual) : asked;
  }

  void add_copies(GpuSetting setting, unsigned rank);
  void add_managed(GpuSetting setting);
  void add_batches(GpuSetting setting);
  void add_fragments(GpuSetting setting);
  void add_latencies(GpuSetting setting);
  void add_allocations(GpuSetting setting);
  // With a reason, the point cannot be measured.
  Point& add(const GpuSetting& setting, std::string_view unit, unsigned rank,
             Prepared (*prepare)(const GpuSetting&, Random&), std::string_view reason);

  const Scope& scope_;
  std::vector<Point> points_;
};

// Combinations of some words, sizes and counts, in this order of loops.
struct Axes {
  std::vector<std::string_view> directions = {kToGpu, kFromGpu};
  std::vector<Bytes> sizes;
  std::vector<std::uint64_t> counts = {1};
  std::vector<std::string_view> engines;
};

template <class Each>
void for_each_of(const Axes& axes, GpuSetting setting, const Each& each) {
  for (const std::string_view direction : axes.directions) {
    for (const Bytes bytes : axes.sizes) {
      for (const std::uint64_t count : axes.counts) {
        for (const std::string_view by : axes.engines) {
          setting.direction = direction;
          setting.bytes = bytes;
          setting.count = count;
          setting.by = by;
          each(setting);
        }
      }
    }
  }
}

// "": possible.
std::string_view why_impossible(const GpuSetting& setting) {
  if (setting.bytes > Bytes{0} && setting.bytes <= kMostBytes && setting.count > 0 &&
      setting.count <= kMostAtOnce) {
    return "";
  }
  return "ask for 1 byte to 1 TiB, and for 1 to 1048576 copies at once";
}

Row gpu_row(const GpuSetting& setting, std::string_view unit) {
  Row row = make_row(
      kName, kParameters,
      {std::string(setting.part), std::string(setting.direction), id_of(&setting.gpu->node),
       std::uint64_t{raw(setting.node)}, std::string(setting.by), std::string(setting.memory),
       setting.bytes.value, setting.count},
      unit);
  if (setting.gpu->device.emulated) row.basis = Basis::emulated;
  return row;
}

// The key that compared engines share.
std::string group_of(const GpuSetting& setting) {
  return fmt::format("{} {} {} {} {} {}", setting.part, setting.direction,
                     raw(setting.gpu->node.id), raw(setting.node), setting.bytes.value,
                     setting.count);
}

Point& PointList::add(const GpuSetting& setting, std::string_view unit, unsigned rank,
                      Prepared (*prepare)(const GpuSetting&, Random&), std::string_view reason) {
  Point& point = points_.emplace_back();
  if (!reason.empty()) return point = without(gpu_row(setting, unit), std::string(reason));
  point.row = gpu_row(setting, unit);
  point.rank = rank;
  point.memory = {setting.gpu->host};
  const bool chased = setting.part == "latency";
  const Bytes moved = chased ? setting.bytes : verified_of(setting.bytes * setting.count);
  point.cost = kMapping + Nanoseconds{static_cast<std::int64_t>(3 * moved.value)};
  point.prepare = [setting, prepare](BufferPool&, Random& random) {
    return prepare(setting, random);
  };
  return point;
}

void PointList::add_copies(GpuSetting setting, unsigned rank) {
  setting.part = "copy";
  const bool with_host = setting.direction != kInside && setting.direction != kAcross;
  const bool reference = setting.by == kEngine && setting.memory == kPinned;
  const bool all =
      setting.node == setting.gpu->host || setting.direction == kInside || scope_.asks("node");
  for (const Bytes bytes : all ? sizes(kCopySizes) : sizes(kFarSizes)) {
    setting.bytes = bytes;
    Point& point =
        add(setting, "B/s", bytes == kUsualSize ? rank : rank + 1,
            setting.by == kHeadrace ? prepare_backend : prepare_copies, why_impossible(setting));
    if (with_host) {
      point.comparable = {
          .group = group_of(setting), .detail = "ratio_to_pinned", .reference = reference};
    }
  }
}

void PointList::add_managed(GpuSetting setting) {
  setting.part = "copy";
  setting.memory = kManaged;
  const Axes axes{.sizes = sizes(std::array{1_MiB, kUsualSize}), .engines = {kPrefetch}};
  for_each_of(axes, setting, [this](const GpuSetting& each) {
    std::string_view why;
    if (!each.gpu->device.concurrent_managed) {
      why = "this GPU does not prefetch managed memory";
    } else if (!why_impossible(each).empty() || each.bytes.value % 4096 != 0) {
      why = "managed memory moves by pages; ask for whole ones";
    }
    Point& point = add(each, "B/s", 3, prepare_prefetch, why);
    point.comparable = {.group = group_of(each), .detail = "ratio_to_pinned"};
  });
}

void PointList::add_batches(GpuSetting setting) {
  setting.part = "batch";
  setting.memory = kPinned;
  const Axes axes{.sizes = sizes(kFragments),
                  .counts = counts({kCounts.begin(), kCounts.end()}),
                  .engines = {kEngine, kBatch, kKernel}};
  for_each_of(axes, setting, [this](const GpuSetting& each) {
    std::string_view why = why_impossible(each);
    if (why.empty() && each.by == kBatch && !cuda::takes_batches(each.gpu->driver)) {
      why = "the driver has no cuMemcpyBatchAsync (CUDA 12.8)";
    } else if (why.empty() && each.by == kKernel && !gathers(each.bytes)) {
      why = "the kernel gathers multiples of 16 bytes; ask for them";
    }
    const bool telling = each.bytes == 64_KiB && (each.count == 1 || each.count == 256);
    Point& point = add(each, "ns", telling ? 2 : 4, prepare_batches, why);
    point.comparable = {
        .group = group_of(each), .detail = "ratio_to_single", .reference = each.by == kEngine};
  });
}

void PointList::add_fragments(GpuSetting setting) {
  setting.part = "fragments";
  setting.memory = kPinned;
  const Axes axes{.sizes = sizes(std::array{kFragments.back()}),
                  .counts = counts({kOfRun}),
                  .engines = {kEngine, kHeadrace}};
  for_each_of(axes, setting, [this](const GpuSetting& each) {
    Point& point = add(each, "B/s", 2, prepare_fragments, why_impossible(each));
    point.comparable = {
        .group = group_of(each), .detail = "ratio_to_single", .reference = each.by == kEngine};
  });
}

void PointList::add_latencies(GpuSetting setting) {
  setting.part = "latency";
  const Bytes large = setting.gpu->beyond_caches();
  for (const Bytes bytes : sizes(std::array{kSmallChase, large})) {
    setting.bytes = bytes;
    const bool of_host = bytes == kSmallChase && large > bytes;
    const auto add_chase = [&](std::string_view direction, std::string_view by,
                               std::string_view memory, NodeId node) {
      setting.direction = direction;
      setting.by = by;
      setting.memory = memory;
      setting.node = node;
      std::string_view why;
      if (!why_impossible(setting).empty() || bytes < 4_KiB) {
        why = "chased are 4 KiB to 1 TiB; ask for as much";
      } else if (by == kCpu && !host_reads_gpu(*setting.gpu)) {
        why = "CPUs do not read this GPU's memory where it is";
      }
      add(setting, "ns", memory == kPinned ? 1 : 2, prepare_chase, why);
    };
    for (const Node* node : host_nodes(scope_.machine)) {
      add_chase(kToGpu, kKernel, kPinned, node->id);
    }
    if (of_host && !scope_.asks("bytes")) continue;
    add_chase(kInside, kKernel, kDevice, setting.gpu->node.id);
    add_chase(kFromGpu, kCpu, kManaged, setting.gpu->host);
  }
}

void PointList::add_allocations(GpuSetting setting) {
  setting.part = "allocation";
  setting.memory = kPinned;
  const Node& node = *scope_.machine.find(setting.node);
  const Axes axes{
      .directions = {kToGpu}, .sizes = sizes(kAllocated), .engines = {kPlaced, kHostAlloc}};
  for_each_of(axes, setting, [&](const GpuSetting& each) {
    const bool fits = why_impossible(each).empty() && fitting(node, each.bytes) == each.bytes;
    Point& point = add(each, "ns/MiB", each.bytes > 256_MiB ? 4 : 2, prepare_allocation,
                       fits ? "" : "the node is too small for it, or nothing is asked for");
    point.cost = kMapping + 3 * Nanoseconds{static_cast<std::int64_t>(each.bytes.value)};
    point.comparable = {.group = group_of(each),
                        .detail = "ratio_to_cuMemHostAlloc",
                        .reference = each.by == kHostAlloc};
  });
}

void PointList::add_gpu(const std::shared_ptr<GpuTarget>& gpu, const GpuTargets& all) {
  const auto setting = [&](std::string_view direction, std::string_view by,
                           std::string_view memory) {
    return GpuSetting{
        .gpu = gpu, .node = gpu->host, .direction = direction, .by = by, .memory = memory};
  };
  for (const std::string_view direction : {kToGpu, kFromGpu, kBoth}) {
    add_copies(setting(direction, kEngine, kPinned), 1);
    add_copies(setting(direction, kKernel, kPinned), 2);
    if (direction == kBoth) continue;  // a copy of pageable memory ends within its call
    add_copies(setting(direction, kEngine, kPageable), 2);
    for (const std::string_view memory : {kPinned, kPageable}) {
      add_copies(setting(direction, kHeadrace, memory), 2);
    }
    if (gpu->device.pageable_access) add_copies(setting(direction, kKernel, kPageable), 3);
    for (const Node* node : host_nodes(scope_.machine)) {
      if (node->id == gpu->host) continue;
      GpuSetting far = setting(direction, kEngine, kPinned);
      far.node = node->id;
      add_copies(far, 3);
    }
  }
  add_managed(setting({}, {}, {}));
  for (const std::string_view by : {kEngine, kKernel}) {
    GpuSetting inside = setting(kInside, by, kDevice);
    inside.node = gpu->node.id;
    add_copies(inside, 2);
    for (const std::shared_ptr<GpuTarget>& other : all) {
      if (other == gpu) continue;
      GpuSetting across = setting(kAcross, by, kDevice);
      across.node = other->node.id;
      across.other = other;
      add_copies(across, 2);
    }
  }
  add_batches(setting({}, {}, {}));
  add_fragments(setting({}, {}, {}));
  add_latencies(setting({}, {}, {}));
  add_allocations(setting({}, {}, {}));
}

std::vector<Point> list_points(const Scope& scope) {
  GpuTargets gpus;
  std::string why;
  for (const Node& node : scope.machine.nodes) {
    if (node.kind != NodeKind::gpu || !node.gpu) continue;
    auto gpu = GpuTarget::find(scope.machine, node);
    if (gpu) gpus.push_back(*std::move(gpu));
    if (!gpu) why = gpu.error().message;
  }
  if (gpus.empty() && why.empty()) {
    const auto driver = cuda::driver();
    why = driver
              ? "the CUDA driver shows no GPU: CUDA_VISIBLE_DEVICES may hide it, or it is in MIG "
                "mode and has no instance; nvidia-smi -L tells"
              : driver.error().message;
  }
  PointList list(scope);
  for (const auto& gpu : gpus) list.add_gpu(gpu, gpus);
  std::vector<Point> points = list.take();
  if (!why.empty()) {
    points.push_back(without({.experiment = std::string(kName), .unit = "B/s"}, why));
  }
  return points;
}

}  // namespace

const Experiment kExperiment{
    kName,       "copies to, from and between GPUs, small ones, latencies, pinning",
    kParameters, {},
    list_points, 2};

}  // namespace headrace::experiment_gpu
