// SPDX-License-Identifier: Apache-2.0
#include "measure/experiments/gpu/parts.h"

#include <algorithm>
#include <vector>

#include "core/fail.h"
#include "headrace/clock.h"
#include "headrace/mover.h"
#include "measure/instruments/cpu_share.h"

namespace headrace::experiment_gpu {

using namespace cuda;
using namespace session;

namespace {

constexpr Nanoseconds kMovedFor = std::chrono::milliseconds{10};
// More than caches on the way keep.
constexpr Bytes kAreaOfRuns = 32_MiB;
constexpr std::uint64_t kMostFragments = 4096;
constexpr unsigned kMostTimes = 200;
// Far longer than needed, unless the GPU hangs or other work keeps it busy.
constexpr Nanoseconds kMoving = std::chrono::seconds{30};
// The byte between runs, where nothing may arrive.
constexpr std::byte kGap{0x5a};

class Fragments final : public GpuProbe {
 public:
  using GpuProbe::GpuProbe;

  Status prepare(Random& random) override {
    const Machine& machine = space_->target().machine;
    const Bytes run = setting_.bytes * (setting_.count + 1);  // with its gap
    HEADRACE_TRY(const Bytes room, space_->area(std::max(kAreaOfRuns, run), run, 1));
    const std::uint64_t most = std::max<std::uint64_t>(1, kMostFragments / setting_.count);
    runs_ = std::min(room / run, most);
    // The driver's own memory: where the GPU is a NUMA node, allocate() gives the host's there.
    HEADRACE_TRY(on_gpu_, space_->on_gpu(run * runs_));
    HEADRACE_TRY(host_, space_->on_host(setting_.node, run * runs_, true));
    if (setting_.by == kEngine) {
      HEADRACE_TRY(stream_, space_->stream());
      HEADRACE_TRY(on_host_, space_->address_of(host_));
    } else {
      device_.emplace(on_gpu_, run * runs_, space_->target().node.id);
      range_.emplace(host_, setting_.node);
      HEADRACE_TRY(backends_, Backends::open(machine));
      mover_.emplace(machine, backends_);
    }
    return verify(random);
  }

  Result<Sample> sample() override {
    const CpuTime cpu = CpuTime::of_process();
    const Nanoseconds begin = system_clock().now();
    Nanoseconds taken{0};
    double times = 0;
    while (taken < kMovedFor && times < kMostTimes) {
      HEADRACE_TRY_STATUS(copy_all(setting_.direction));
      taken = system_clock().now() - begin;
      ++times;
    }
    const std::uint64_t fragments = runs_ * setting_.count;
    const double bytes = times * static_cast<double>((setting_.bytes * fragments).value);
    return Sample{.value = bytes / seconds(taken),
                  .details = {{"cpu_s_per_gb", cpu.per_gb(bytes)}}};
  }

 private:
  // The offset of fragment `number`, on both sides.
  std::uint64_t offset_of(std::uint64_t number) const {
    return (number + number / setting_.count) * setting_.bytes.value;
  }

  Status copy_all(std::string_view direction) {
    return setting_.by == kEngine ? copy_each(direction == kToGpu) : move(direction == kToGpu);
  }

  Status copy_each(bool to_gpu) {
    for (std::uint64_t i = 0; i < runs_ * setting_.count; ++i) {
      const CUdeviceptr there = on_gpu_ + offset_of(i);
      const CUdeviceptr here = on_host_ + offset_of(i);
      HEADRACE_TRY_STATUS(space_->gpu().ok(
          space_->driver().cuMemcpyAsync(to_gpu ? there : here, to_gpu ? here : there,
                                         setting_.bytes.value, stream_.stream),
          "cannot copy"));
    }
    HEADRACE_TRY_STATUS(space_->stop(stream_));
    return space_->wait(stream_);
  }

  Status move(bool to_gpu) {
    pairs_.clear();
    for (std::uint64_t i = 0; i < runs_ * setting_.count; ++i) {
      const Extent there{&*device_, offset_of(i), setting_.bytes};
      const Extent here{&*range_, offset_of(i), setting_.bytes};
      pairs_.push_back({.to = to_gpu ? there : here, .from = to_gpu ? here : there});
    }
    HEADRACE_TRY([[maybe_unused]] const MoveStats moved, mover_->copy(pairs_).wait(kMoving));
    return {};
  }

  Status verify(Random& random) {
    fill_randomly(host_, random);
    const std::vector<std::byte> sent(host_.begin(), host_.end());
    HEADRACE_TRY_STATUS(copy_all(kToGpu));
    std::ranges::fill(host_, kGap);
    HEADRACE_TRY_STATUS(copy_all(kFromGpu));
    const std::size_t run = setting_.bytes.value * setting_.count;
    bool right = true;
    for (std::uint64_t i = 0; i < runs_ && right; ++i) {
      const std::size_t at = offset_of(i * setting_.count);
      right = std::ranges::equal(host_.subspan(at, run), std::span(sent).subspan(at, run)) &&
              std::ranges::all_of(host_.subspan(at + run, setting_.bytes.value),
                                  [](std::byte each) { return each == kGap; });
    }
    if (right) return {};
    return fail(ErrorCode::io, "what came back is not what was sent, or more came");
  }

  std::uint64_t runs_ = 0;
  CUdeviceptr on_gpu_ = 0;
  std::span<std::byte> host_;
  TimedStream stream_;  // for `engine`
  CUdeviceptr on_host_ = 0;
  std::optional<DeviceRange> device_;  // for `headrace`
  std::optional<MemoryRange> range_;
  std::vector<MovePair> pairs_;
  Backends backends_;
  std::optional<Mover> mover_;  // destroyed first: it moves the buffers above
};

}  // namespace

Prepared prepare_fragments(const GpuSetting& setting, Random& random) {
  return prepared<Fragments>(setting, random);
}

}  // namespace headrace::experiment_gpu
