// SPDX-License-Identifier: Apache-2.0
// Copies by the driver, by its prefetching, and by a Mover.
#include "measure/experiments/gpu/parts.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "backend/cuda/engines/engines.h"
#include "core/fail.h"
#include "headrace/mover.h"
#include "measure/instruments/cpu_share.h"
#include "measure/instruments/transfers.h"

namespace headrace::experiment_gpu {

using namespace cuda;
using namespace session;

namespace {

constexpr Nanoseconds kCopiedFor = std::chrono::milliseconds{10};
constexpr std::uint64_t kMostCopies = 4096;
constexpr unsigned kThreads = 256;
// Half of a multiprocessor's threads, so that two kernels run at the same time.
constexpr unsigned kBlocksPerProcessor = 4;

// More than caches on the way keep, within the copies of one sample.
Bytes walked(const GpuTarget& gpu, Bytes piece) {
  return std::min(gpu.beyond_caches(), piece * kMostCopies);
}

// One direction: its areas, its engine, its stream.
struct Way {
  std::string_view direction;
  bool kernel = false;
  CUdeviceptr to = 0;
  CUdeviceptr from = 0;
  CUcontext to_context = nullptr;  // for `across`
  CUcontext from_context = nullptr;
  TimedStream stream = {};
};

CUdeviceptr address_in(std::span<std::byte> host) {
  return reinterpret_cast<std::uintptr_t>(host.data());
}

std::byte* pointer(CUdeviceptr host) { return reinterpret_cast<std::byte*>(host); }

// Copies bytes from one device address to another, by the GPU's multiprocessors.
class KernelCopier {
 public:
  static Result<KernelCopier> load(const GpuWorkspace& space) {
    KernelCopier copier;
    HEADRACE_TRY(copier.kernel_, space.gpu().kernel(kCopy));
    HEADRACE_TRY(const int processors,
                 space.gpu().attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
    copier.blocks_ = static_cast<unsigned>(processors) * kBlocksPerProcessor;
    return copier;
  }

  CUresult launch(const GpuWorkspace& space, CUdeviceptr to, CUdeviceptr from, std::uint64_t bytes,
                  CUstream stream) const {
    std::array<void*, 3> parameters{&to, &from, &bytes};
    // At most one thread per element of 16 bytes.
    const std::uint64_t elements = std::max<std::uint64_t>(1, bytes / 16);
    const auto blocks = static_cast<unsigned>(
        std::min<std::uint64_t>(blocks_, (elements + kThreads - 1) / kThreads));
    return space.driver().cuLaunchKernel(kernel_, blocks, 1, 1, kThreads, 1, 1, 0, stream,
                                         parameters.data(), nullptr);
  }

 private:
  CUfunction kernel_ = nullptr;
  unsigned blocks_ = 0;
};

class Copies final : public GpuProbe {
 public:
  using GpuProbe::GpuProbe;

  Status prepare(Random& random) override;
  Result<Sample> sample() override;

 private:
  Status add_host_way(std::string_view direction, Random& random);
  Status add_device_way(Random& random);
  Result<Way> engine(std::string_view direction, CUdeviceptr to, CUdeviceptr from);
  // The copy of `bytes` at `offset` of the areas.
  Status enqueue(const Way& way, std::uint64_t offset, std::uint64_t bytes) const;
  // Makes the copies that are verified, in the same way as the measured ones, and waits.
  Status carry(const Way& way);
  Result<Nanoseconds> run(std::uint64_t copies);

  KernelCopier copier_;
  Bytes area_;
  Bytes verified_;  // of it: the first copies
  bool first_ = true;
  std::vector<Way> ways_;
  std::uint64_t copies_ = 1;
};

Status Copies::enqueue(const Way& way, std::uint64_t offset, std::uint64_t bytes) const {
  const Driver& driver = space_->driver();
  const CUdeviceptr to = way.to + offset;
  const CUdeviceptr from = way.from + offset;
  const CUstream stream = way.stream.stream;
  CUresult result = CUDA_SUCCESS;
  if (way.kernel) {
    result = copier_.launch(*space_, to, from, bytes, stream);
  } else if (way.direction == kToGpu) {
    result = driver.cuMemcpyHtoDAsync_v2(to, pointer(from), bytes, stream);
  } else if (way.direction == kFromGpu) {
    result = driver.cuMemcpyDtoHAsync_v2(pointer(to), from, bytes, stream);
  } else if (way.direction == kInside) {
    result = driver.cuMemcpyDtoDAsync_v2(to, from, bytes, stream);
  } else {
    result = driver.cuMemcpyPeerAsync(to, way.to_context, from, way.from_context, bytes, stream);
  }
  return space_->gpu().ok(result, "cannot copy");
}

Status Copies::carry(const Way& way) {
  for (std::uint64_t at = 0; at < verified_.value; at += setting_.bytes.value) {
    HEADRACE_TRY_STATUS(enqueue(way, at, setting_.bytes.value));
  }
  HEADRACE_TRY_STATUS(space_->stop(way.stream));
  return space_->wait(way.stream);
}

Result<Way> Copies::engine(std::string_view direction, CUdeviceptr to, CUdeviceptr from) {
  HEADRACE_TRY(const TimedStream stream, space_->stream());
  return Way{.direction = direction, .to = to, .from = from, .stream = stream};
}

// Random bytes go to the GPU and back; the measured direction uses the measured engine.
Status Copies::add_host_way(std::string_view direction, Random& random) {
  const bool pinned = setting_.memory == kPinned;
  HEADRACE_TRY(const auto host, space_->on_host(setting_.node, area_, pinned));
  HEADRACE_TRY(const CUdeviceptr device, space_->on_gpu(area_));
  HEADRACE_TRY(Way there, engine(kToGpu, device, address_in(host)));
  HEADRACE_TRY(Way back, engine(kFromGpu, address_in(host), device));
  Way& measured = direction == kToGpu ? there : back;
  if (setting_.by == kKernel) {
    measured.kernel = true;
    HEADRACE_TRY((direction == kToGpu ? measured.from : measured.to), space_->address_of(host));
  }
  ways_.push_back(measured);
  if (!first_) return {};
  const auto seen = host.first(verified_.value);
  fill_randomly(seen, random);
  const std::uint64_t sent = checksum(seen);
  HEADRACE_TRY_STATUS(carry(there));
  HEADRACE_TRY(const std::uint64_t arrived, space_->checksum_of(device, verified_));
  if (arrived != sent) return fail(ErrorCode::io, "what arrived on the GPU is not what was sent");
  std::ranges::fill(seen, std::byte{0});
  HEADRACE_TRY_STATUS(carry(back));
  if (checksum(seen) != sent) return fail(ErrorCode::io, "what came back is not what was sent");
  return {};
}

Status Copies::add_device_way(Random& random) {
  const bool across = setting_.direction == kAcross;
  HEADRACE_TRY(const CUdeviceptr from, space_->on_gpu(area_));
  CUdeviceptr to = 0;
  if (across) {
    HEADRACE_TRY(to, space_->on_other(*setting_.other, area_));
  } else {
    HEADRACE_TRY(to, space_->on_gpu(area_));
  }
  HEADRACE_TRY(Way way, engine(setting_.direction, to, from));
  way.kernel = setting_.by == kKernel;
  if (across && way.kernel &&
      !enable_peer_access(*space_->target().context, *setting_.other->context)) {
    return fail(ErrorCode::unsupported, "these GPUs do not reach each other's memory");
  }
  Way home{.direction = setting_.direction, .to = from, .from = to, .stream = way.stream};
  if (across) {
    way.from_context = home.to_context = space_->target().context->handle();
    way.to_context = home.from_context = setting_.other->context->handle();
  }
  ways_.push_back(way);
  if (!first_) return {};
  HEADRACE_TRY(const auto host, space_->on_host(space_->target().host, verified_, false));
  fill_randomly(host, random);
  const std::uint64_t sent = checksum(host);
  HEADRACE_TRY(const Way there, engine(kToGpu, from, address_in(host)));
  HEADRACE_TRY(const Way back, engine(kFromGpu, address_in(host), from));
  HEADRACE_TRY_STATUS(carry(there));
  HEADRACE_TRY_STATUS(carry(way));
  if (!across) {
    HEADRACE_TRY(const std::uint64_t arrived, space_->checksum_of(to, verified_));
    if (arrived != sent) return fail(ErrorCode::io, "what arrived is not what was sent");
    return {};
  }
  // The other GPU lacks our kernels, so the bytes that it got are copied back.
  HEADRACE_TRY_STATUS(space_->gpu().ok(
      space_->driver().cuMemsetD8Async(from, 0, area_.value, way.stream.stream), "cannot clear"));
  HEADRACE_TRY_STATUS(carry(home));
  HEADRACE_TRY_STATUS(carry(back));
  if (checksum(host) != sent) return fail(ErrorCode::io, "what came back is not what was sent");
  return {};
}

Status Copies::prepare(Random& random) {
  HEADRACE_TRY(copier_, KernelCopier::load(*space_));
  const bool two_areas = setting_.direction == kBoth || setting_.direction == kInside;
  HEADRACE_TRY(area_, space_->area(walked(space_->target(), setting_.bytes), setting_.bytes,
                                   two_areas ? 2 : 1));
  verified_ = std::min(area_, verified_of(setting_.bytes));
  first_ = is_first(setting_);
  if (setting_.direction == kBoth) {
    for (const std::string_view direction : {kToGpu, kFromGpu}) {
      HEADRACE_TRY_STATUS(add_host_way(direction, random));
    }
  } else if (setting_.direction == kInside || setting_.direction == kAcross) {
    HEADRACE_TRY_STATUS(add_device_way(random));
  } else {
    HEADRACE_TRY_STATUS(add_host_way(setting_.direction, random));
  }
  constexpr std::uint64_t kTried = 4;
  HEADRACE_TRY(const Nanoseconds tried, run(kTried));
  const double each = std::max(1.0, static_cast<double>(tried.count()) / kTried);
  const double wanted = static_cast<double>(kCopiedFor.count()) / each;
  copies_ = std::clamp(static_cast<std::uint64_t>(wanted), std::uint64_t{1}, kMostCopies);
  return {};
}

// From the first start to the last end.
Result<Nanoseconds> Copies::run(std::uint64_t copies) {
  const std::uint64_t bytes = setting_.bytes.value;
  for (const Way& way : ways_) HEADRACE_TRY_STATUS(space_->start(way.stream));
  for (std::uint64_t i = 0; i < copies; ++i) {
    for (const Way& way : ways_) {
      HEADRACE_TRY_STATUS(enqueue(way, i * bytes % area_.value, bytes));
    }
  }
  for (const Way& way : ways_) HEADRACE_TRY_STATUS(space_->stop(way.stream));
  for (const Way& way : ways_) HEADRACE_TRY_STATUS(space_->wait(way.stream));
  Nanoseconds longest{0};
  for (const Way& from : ways_) {
    for (const Way& to : ways_) {
      HEADRACE_TRY(const Nanoseconds time, space_->between(from.stream.start, to.stream.end));
      longest = std::max(longest, time);
    }
  }
  return longest;
}

Result<Sample> Copies::sample() {
  const CpuTime cpu = CpuTime::of_process();
  HEADRACE_TRY(const Nanoseconds time, run(copies_));
  const double bytes = static_cast<double>(copies_ * setting_.bytes.value);
  const double of_all = bytes * static_cast<double>(ways_.size());
  Sample sample{.value = of_all / seconds(time), .details = {{"cpu_s_per_gb", cpu.per_gb(of_all)}}};
  if (const auto l2 = space_->target().l2()) {
    sample.details["l2_bytes"] = static_cast<double>(l2->value);
  }
  if (ways_.size() == 1) return sample;
  for (const Way& way : ways_) {
    HEADRACE_TRY(const Nanoseconds own, space_->between(way.stream.start, way.stream.end));
    sample.details[std::string(way.direction)] = bytes / seconds(own);
  }
  return sample;
}

// Parts of managed memory that the driver moves to the side that reads them next.
class Prefetching final : public GpuProbe {
 public:
  using GpuProbe::GpuProbe;

  Status prepare(Random& random) override {
    HEADRACE_TRY(const Bytes area,
                 space_->area(walked(space_->target(), setting_.bytes), setting_.bytes, 1));
    HEADRACE_TRY(memory_, space_->managed(area));
    HEADRACE_TRY(stream_, space_->stream());
    fill_randomly(memory_, random);
    const std::uint64_t sent = checksum(memory_);
    HEADRACE_TRY_STATUS(move(true));
    HEADRACE_TRY_STATUS(move(false));
    if (checksum(memory_) == sent) return {};
    return fail(ErrorCode::io, "what came back is not what was sent");
  }

  // The way back is not counted.
  Result<Sample> sample() override {
    const bool to_gpu = setting_.direction == kToGpu;
    Nanoseconds counted{0};
    double bytes = 0;
    double cpu_seconds = 0;
    do {
      for (const bool there : {true, false}) {
        const CpuTime cpu = CpuTime::of_process();
        HEADRACE_TRY(const Nanoseconds time, move(there));
        if (there != to_gpu) continue;
        counted += time;
        cpu_seconds += cpu.seconds();
        bytes += static_cast<double>(memory_.size());
      }
    } while (counted < kCopiedFor);
    return Sample{.value = bytes / seconds(counted),
                  .details = {{"cpu_s_per_gb", cpu_seconds / bytes * 1e9}}};
  }

 private:
  Result<Nanoseconds> move(bool to_gpu) {
    HEADRACE_TRY_STATUS(space_->start(stream_));
    for (std::size_t at = 0; at < memory_.size(); at += setting_.bytes.value) {
      HEADRACE_TRY_STATUS(space_->gpu().ok(prefetch(at, to_gpu), "cannot prefetch"));
    }
    HEADRACE_TRY_STATUS(space_->stop(stream_));
    HEADRACE_TRY_STATUS(space_->wait(stream_));
    return space_->between(stream_.start, stream_.end);
  }

  CUresult prefetch(std::size_t at, bool to_gpu) const {
    const CUmemLocation where = to_gpu ? gpu_location(space_->gpu().device())
                                       : host_node_location(static_cast<int>(raw(setting_.node)));
    return cuda::prefetch(space_->driver(), address_in(memory_) + at, setting_.bytes.value, where,
                          stream_.stream);
  }

  std::span<std::byte> memory_;
  TimedStream stream_;
};

}  // namespace

Prepared prepare_copies(const GpuSetting& setting, Random& random) {
  return prepared<Copies>(setting, random);
}

Prepared prepare_prefetch(const GpuSetting& setting, Random& random) {
  return prepared<Prefetching>(setting, random);
}

namespace {

constexpr Nanoseconds kTransferring = std::chrono::milliseconds{10};
// Far longer than needed, unless the GPU hangs or other work keeps it busy.
constexpr Nanoseconds kVerifying = std::chrono::seconds{30};
// More than any link moves in that time.
constexpr Bytes kMostMoved = 4_GiB;
constexpr std::uint64_t kMostPieces = 4096;
constexpr Bytes kLarge = 1_MiB;
constexpr std::size_t kTogether = 32;

class BackendCopies final : public GpuProbe {
 public:
  using GpuProbe::GpuProbe;

  Status prepare(Random& random) override {
    const Machine& machine = space_->target().machine;
    const NodeId gpu = space_->target().node.id;
    const auto engine = std::ranges::find_if(machine.engines, [&](const Engine& each) {
      return each.kind == EngineKind::gpu && each.home == gpu;
    });
    if (engine == machine.engines.end()) {
      return fail(ErrorCode::absent, "{} has no engine", space_->target().node.name);
    }
    const Bytes wanted = std::min(space_->target().beyond_caches(), setting_.bytes * kMostPieces);
    HEADRACE_TRY(const Bytes area, space_->area(wanted, setting_.bytes, 1));
    // The driver's own memory: where the GPU is a NUMA node, allocate() gives unregistered memory
    // there, which takes another path.
    HEADRACE_TRY(const cuda::CUdeviceptr device, space_->on_gpu(area));
    device_.emplace(device, area, gpu);
    HEADRACE_TRY(const auto host, space_->on_host(setting_.node, area, setting_.memory == kPinned));
    host_.emplace(host, setting_.node);
    HEADRACE_TRY(auto backend, open_cuda(machine, {engine->id}));
    Backend& opened = *backend;
    backends_.add(std::move(backend));
    mover_.emplace(machine, backends_);
    const std::uint64_t walked =
        std::min(std::min(area, verified_of(setting_.bytes)) / setting_.bytes, kMostPieces);
    const auto there = pieces(kToGpu, walked, engine->id, area);
    const auto back = pieces(kFromGpu, walked, engine->id, area);
    const auto used = host.first(walked * setting_.bytes.value);
    // A backend takes parts of what is larger.
    if (is_first(setting_) && setting_.bytes <= opened.capabilities().max_piece) {
      const std::size_t depth = std::min<std::size_t>(opened.capabilities().max_in_flight, 64);
      HEADRACE_TRY_STATUS(verify_both_ways(opened, there, back, depth, used, random));
    }
    const std::uint64_t count = std::min(kMostMoved / setting_.bytes, kMostPieces);
    pieces_ = pieces(setting_.direction, count, engine->id, area);
    return {};
  }

  // One after the other, each waited for, as a program has them; small ones 32 at a time, as one
  // move.
  Result<Sample> sample() override {
    const CpuTime cpu = CpuTime::of_process();
    const std::size_t together = setting_.bytes < kLarge ? kTogether : 1;
    std::vector<MovePair> pairs;
    std::uint64_t moved = 0;
    const Nanoseconds begun = system_clock().now();
    Nanoseconds took{0};
    for (std::size_t at = 0; took < kTransferring; took = system_clock().now() - begun) {
      pairs.clear();
      for (std::size_t i = 0; i < together; ++i) {
        const Piece& piece = pieces_[at++ % pieces_.size()];
        pairs.push_back({.to = piece.to, .from = piece.from});
      }
      const Transfer transfer =
          together == 1 ? mover_->copy(pairs[0].to, pairs[0].from) : mover_->copy(pairs);
      HEADRACE_TRY_STATUS(transfer.wait(kVerifying));
      moved += together;
    }
    const double bytes = static_cast<double>(moved * setting_.bytes.value);
    return Sample{.value = bytes / seconds(took), .details = {{"cpu_s_per_gb", cpu.per_gb(bytes)}}};
  }

 private:
  // Consecutive pieces of the area, repeated.
  std::vector<Piece> pieces(std::string_view direction, std::uint64_t count, EngineId engine,
                            Bytes area) const {
    std::vector<Piece> made;
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t at = i * setting_.bytes.value % area.value;
      const Extent there{&*device_, at, setting_.bytes};
      const Extent here{&*host_, at, setting_.bytes};
      const bool to_gpu = direction == kToGpu;
      made.push_back(
          {.from = to_gpu ? here : there, .to = to_gpu ? there : here, .engine = engine, .tag = i});
    }
    return made;
  }

  std::optional<DeviceRange> device_;
  std::optional<MemoryRange> host_;
  std::vector<Piece> pieces_;
  // Destroyed first: they copy the buffers above.
  Backends backends_;
  std::optional<Mover> mover_;
};

Status transfer_all(Backend& backend, std::span<const Piece> pieces, std::size_t depth) {
  Histogram unused;
  HEADRACE_TRY(const auto moved, transfer_within(backend, pieces, depth, kVerifying, unused));
  if (moved.pieces == pieces.size()) return {};
  return fail(ErrorCode::timed_out, "{} of {} copies were made in {:.0f} s", moved.pieces,
              pieces.size(), seconds(kVerifying));
}

}  // namespace

Status verify_both_ways(Backend& backend, std::span<const Piece> there, std::span<const Piece> back,
                        std::size_t depth, std::span<std::byte> host, Random& random) {
  fill_randomly(host, random);
  const std::uint64_t sent = checksum(host);
  HEADRACE_TRY_STATUS(transfer_all(backend, there, depth));
  std::ranges::fill(host, std::byte{0});
  HEADRACE_TRY_STATUS(transfer_all(backend, back, depth));
  if (checksum(host) == sent) return {};
  return fail(ErrorCode::io, "what came back is not what was sent");
}

Prepared prepare_backend(const GpuSetting& setting, Random& random) {
  return prepared<BackendCopies>(setting, random);
}

}  // namespace headrace::experiment_gpu
