// SPDX-License-Identifier: Apache-2.0
// Reading and writing a file: by block size, requests in flight, io_uring or threads, past the page
// cache or through it.
//
// Random blocks of a file of 256 MiB in the measured directory. The value is payload per second.
// The details are requests per second, percentiles of the time per request, and `cpu_s_per_gb`, CPU
// time of all threads in seconds per 10^9 bytes. A read through the page cache begins with none of
// the file cached. A write through it ends when the device has the bytes (fdatasync); before that
// it would measure memory. The file is filled with incompressible bytes before the first point. The
// threads run on the CPUs of the node nearest to the disk, which the row names, and read into its
// memory.
#include <unistd.h>

#include <algorithm>
#include <array>

#include "backend/storage/storage.h"
#include "core/fail.h"
#include "headrace/clock.h"
#include "headrace/placement.h"
#include "measure/experiments/experiments.h"
#include "measure/instruments/cpu_share.h"
#include "measure/instruments/measuring_file.h"
#include "measure/instruments/transfers.h"
#include "measure/instruments/worker_pool.h"

namespace headrace::experiment_storage {

using namespace session;

namespace {

constexpr std::string_view kName = "storage";
constexpr Parameter kParameters[] = {
    {"node", ParameterKind::node},   {"operation", ParameterKind::operation},
    {"by", ParameterKind::word},     {"io", ParameterKind::word},
    {"bytes", ParameterKind::count}, {"depth", ParameterKind::count},
};
constexpr std::string_view kDetails[] = {"iops", "p50_ns", "p99_ns"};

constexpr Nanoseconds kTransferTime = std::chrono::milliseconds{60};
// Per sample; less for writes, which wear out a device.
constexpr Bytes kMostRead = 64_MiB;
constexpr Bytes kMostWritten = 16_MiB;
constexpr std::array kBlockSizes = {4_KiB, 16_KiB, 64_KiB, 256_KiB, 1_MiB, 4_MiB};
constexpr std::array<std::uint64_t, 5> kDepths = {1, 4, 16, 32, 64};

struct StorageSetting {
  const Node* node = nullptr;  // of the disk
  const Node* near = nullptr;  // its CPUs read and write
  EngineId engine{0};
  bool write = false;
  bool threads = false;
  bool direct = true;
  Bytes block;
  std::uint64_t depth = 1;
};

class StorageProbe final : public Probe {
 public:
  StorageProbe(const StorageSetting& setting, const File& file, std::span<std::byte> memory,
               NodeId memory_node, std::unique_ptr<Backend> backend, Random random)
      : setting_(setting),
        file_(file),
        memory_(memory, memory_node),
        backend_(std::move(backend)),
        random_(random) {}

  Result<Sample> sample() override {
    const BoundToNode bound(setting_.near);
    const std::vector<Piece> pieces = random_pieces();
    if (!setting_.direct && !setting_.write) HEADRACE_TRY_STATUS(make_cold(file_));
    Histogram each_ns;
    const CpuTime cpu = CpuTime::of_process();
    HEADRACE_TRY(Transferred transferred,
                 transfer_within(*backend_, pieces, setting_.depth, kTransferTime, each_ns));
    if (!setting_.direct && setting_.write) {
      const Nanoseconds begin = system_clock().now();
      if (fdatasync(file_.buffered_fd()) != 0) return fail_errno(errno, "cannot flush the file");
      transferred.time += system_clock().now() - begin;
    }
    const double iops = static_cast<double>(transferred.pieces) / seconds(transferred.time);
    const double bytes = static_cast<double>(transferred.pieces * setting_.block.value);
    Sample sample{.value = bytes / seconds(transferred.time),
                  .details = {{"iops", iops}, {"cpu_s_per_gb", cpu.per_gb(bytes)}}};
    for (const auto& [name, q] : {std::pair{"p50_ns", 0.5}, {"p99_ns", 0.99}}) {
      if (const auto value = each_ns.quantile(q)) {
        sample.details[name] = static_cast<double>(*value);
      }
    }
    return sample;
  }

 private:
  // Each block of the file at most once, in random order, each with its own part of the memory.
  std::vector<Piece> random_pieces() {
    const Bytes most = setting_.write ? kMostWritten : kMostRead;
    const std::uint64_t bytes = setting_.block.value;
    const std::uint64_t count = most / setting_.block;
    const std::uint64_t stride = file_.size() / setting_.block / count;
    std::vector<Piece> pieces;
    for (std::uint64_t i = 0; i < count; ++i) {
      const Extent of_file{&file_, (i * stride + random_.below(stride)) * bytes, setting_.block};
      const Extent of_memory{&memory_, i * bytes, setting_.block};
      pieces.push_back({.from = setting_.write ? of_memory : of_file,
                        .to = setting_.write ? of_file : of_memory,
                        .engine = setting_.engine});
    }
    for (std::size_t i = pieces.size(); i > 1; --i) {
      std::swap(pieces[i - 1], pieces[random_.below(i)]);
    }
    for (std::size_t i = 0; i < pieces.size(); ++i) pieces[i].tag = i;
    return pieces;
  }

  const StorageSetting setting_;
  const File& file_;
  const MemoryRange memory_;
  const std::unique_ptr<Backend> backend_;
  Random random_;
};

Row storage_row(const StorageSetting& setting) {
  return make_row(kName, kParameters,
                  {id_of(setting.node), setting.write ? "write" : "read",
                   setting.threads ? "threads" : "io_uring", setting.direct ? "direct" : "buffered",
                   setting.block.value, setting.depth},
                  "B/s");
}

// Reads past the page cache by io_uring show the disk's limit; the rest is for comparison.
unsigned rank_of(const StorageSetting& setting) {
  const auto is = [&](Bytes block, std::uint64_t depth) {
    return setting.block == block && setting.depth == depth;
  };
  const bool corner =
      is(4_KiB, 1) || is(4_KiB, 32) || is(64_KiB, 16) || is(1_MiB, 1) || is(1_MiB, 16);
  if (setting.threads || !setting.direct || !corner) return 4;
  return setting.write ? 3 : 1;
}

Result<std::unique_ptr<Backend>> open_backend(const Machine& machine,
                                              const StorageSetting& setting) {
  StorageOptions options;
  options.queue_depth = setting.depth;
  options.threads = setting.depth;
  options.queue = setting.threads ? StorageQueue::threads : StorageQueue::io_uring;
  options.request = std::max(setting.block, options.request);
  return open_storage(machine, {setting.engine}, options);
}

Point storage_point(const Machine& machine, const StorageSetting& setting, const Node& memory,
                    const std::shared_ptr<MeasuringFile>& file) {
  Point point;
  point.row = storage_row(setting);
  const CpuSet near = setting.near == nullptr ? CpuSet{} : usable_cpus(setting.near);
  point.row.cpus = list_of_cpus(near.empty() ? usable_cpus() : near);
  point.rank = rank_of(setting);
  point.memory = {memory.id, PageSize::transparent};
  point.file = file;
  const Bytes wanted = setting.write ? kMostWritten : kMostRead;
  if (fitting(memory, wanted) < wanted) {
    return without(std::move(point.row), "node " + std::to_string(raw(memory.id)) +
                                             " is too small to read into: needs " +
                                             to_string(wanted * 16));
  }
  point.cost = 5 * kTransferTime;
  point.prepare = [&machine, setting, wanted, file, key = point.memory](
                      BufferPool& buffers, Random& random) -> Result<std::unique_ptr<Probe>> {
    HEADRACE_TRY(const File* opened, file->get());
    HEADRACE_TRY(const auto bytes, buffers.get(key, 0, wanted));
    if (setting.write) fill_randomly(bytes, random);
    const BoundToNode bound(setting.near);  // the queue's threads inherit it
    HEADRACE_TRY(auto backend, open_backend(machine, setting));
    return std::make_unique<StorageProbe>(setting, *opened, bytes, key.node, std::move(backend),
                                          Random(random()));
  };
  return point;
}

void add_disk(std::vector<Point>& points, const Scope& scope, StorageSetting setting) {
  const std::vector<const Node*> memories = memory_nodes(scope.machine);
  if (memories.empty()) return;
  const bool near = std::ranges::find(memories, setting.near) != memories.end();
  const Node& memory = near ? *setting.near : *memories.front();
  const auto buffered_file = std::make_shared<MeasuringFile>(scope.machine, scope.directory, false);
  for (const bool write : {false, true}) {
    for (const bool threads : {false, true}) {
      for (const bool direct : {true, false}) {
        for (const Bytes block : kBlockSizes) {
          for (const std::uint64_t depth : kDepths) {
            setting.write = write;
            setting.threads = threads;
            setting.direct = direct;
            setting.block = block;
            setting.depth = depth;
            // At most the bytes of one sample are in flight.
            if (block * depth > kMostWritten) continue;
            points.push_back(
                storage_point(scope.machine, setting, memory, direct ? scope.file : buffered_file));
          }
        }
      }
    }
  }
}

std::vector<Point> list_points(const Scope& scope) {
  std::vector<Point> points;
  const Node* disk = disk_behind(scope.machine, scope.directory);
  for (const Engine& engine : scope.machine.engines) {
    if (disk == nullptr || engine.kind != EngineKind::ssd || engine.home != disk->id) continue;
    add_disk(points, scope,
             {.node = disk, .near = host_of(scope.machine, *disk), .engine = engine.id});
  }
  if (points.empty()) {
    points.push_back(without({.experiment = std::string(kName), .unit = "B/s"},
                             "no disk of this machine is behind " + scope.directory.string()));
  }
  return points;
}

}  // namespace

const Experiment kExperiment{kName,
                             "reading and writing a file: block size, depth, io_uring or threads",
                             kParameters, kDetails, list_points};

}  // namespace headrace::experiment_storage
