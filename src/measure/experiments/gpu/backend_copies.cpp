// SPDX-License-Identifier: Apache-2.0
#include "measure/experiments/gpu/parts.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "backend/cuda/engines/engines.h"
#include "core/fail.h"
#include "headrace/mover.h"
#include "measure/instruments/cpu_share.h"
#include "measure/instruments/transfers.h"

namespace headrace::experiment_gpu {

using namespace session;

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
