// SPDX-License-Identifier: Apache-2.0
#include "measure/experiments/gpu/parts.h"

#include <algorithm>
#include <vector>

#include "core/fail.h"
#include "headrace/clock.h"
#include "measure/instruments/cpu_share.h"

namespace headrace::experiment_gpu {

using namespace cuda;
using namespace session;

namespace {

constexpr Nanoseconds kSubmittedFor = std::chrono::milliseconds{5};
constexpr unsigned kMostSubmissions = 200;

class Batches final : public GpuProbe {
 public:
  using GpuProbe::GpuProbe;

  Status prepare(Random& random) override;
  Result<Sample> sample() override;

 private:
  Result<bool> arrived() const;
  CUresult submit();
  Result<Nanoseconds> once(Nanoseconds& submitting);

  CUfunction kernel_ = nullptr;
  std::span<std::byte> host_;
  TimedStream stream_;
  std::vector<CUdeviceptr> to_;
  std::vector<CUdeviceptr> from_;
  std::vector<std::size_t> sizes_;
  std::vector<ListedCopy> list_;
};

// The host's blocks are the even-numbered ones.
Status Batches::prepare(Random& random) {
  HEADRACE_TRY(kernel_, space_->gpu().kernel(kGather));
  HEADRACE_TRY(stream_, space_->stream());
  const std::uint64_t block = setting_.bytes.value;
  const Bytes packed = setting_.bytes * setting_.count;
  HEADRACE_TRY(const Bytes area, space_->area(packed, packed, 1));
  HEADRACE_TRY(const CUdeviceptr device, space_->on_gpu(area));
  HEADRACE_TRY(host_, space_->on_host(setting_.node, area * 2, true));
  HEADRACE_TRY(const CUdeviceptr host, space_->address_of(host_));
  const bool to_gpu = setting_.direction == kToGpu;
  for (std::uint64_t i = 0; i < setting_.count; ++i) {
    to_.push_back(to_gpu ? device + i * block : host + 2 * i * block);
    from_.push_back(to_gpu ? host + 2 * i * block : device + i * block);
    sizes_.push_back(block);
    list_.push_back({.to = to_.back(), .from = from_.back(), .bytes = block});
  }
  fill_randomly(host_, random);
  Nanoseconds submitting{0};
  HEADRACE_TRY_STATUS(once(submitting));
  HEADRACE_TRY(const bool there, arrived());
  if (there) return {};
  return fail(ErrorCode::io, "not all of the copies arrived");
}

// Compares all blocks of both sides.
Result<bool> Batches::arrived() const {
  const std::size_t block = setting_.bytes.value;
  const Bytes packed = setting_.bytes * setting_.count;
  HEADRACE_TRY(const auto seen, space_->on_host(setting_.node, packed, true));
  const CUdeviceptr device = (setting_.direction == kToGpu ? to_ : from_).front();
  HEADRACE_TRY_STATUS(space_->gpu().ok(
      space_->driver().cuMemcpyDtoHAsync_v2(seen.data(), device, packed.value, stream_.stream),
      "cannot copy"));
  HEADRACE_TRY_STATUS(space_->stop(stream_));
  HEADRACE_TRY_STATUS(space_->wait(stream_));
  for (std::size_t i = 0; i < sizes_.size(); ++i) {
    const auto arrived = seen.subspan(i * block, block);
    if (!std::ranges::equal(arrived, host_.subspan(2 * i * block, block))) return false;
  }
  return true;
}

CUresult Batches::submit() {
  if (setting_.by == kKernel) {
    std::size_t put = 0;
    return gather(space_->driver(), kernel_, list_, stream_.stream, put);
  }
  if (setting_.by == kBatch) {
    return copy_batch(space_->driver(), to_, from_, sizes_, stream_.stream);
  }
  for (std::size_t i = 0; i < sizes_.size(); ++i) {
    const CUresult result =
        space_->driver().cuMemcpyAsync(to_[i], from_[i], sizes_[i], stream_.stream);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

// From the start of the first copy to the end of the last.
Result<Nanoseconds> Batches::once(Nanoseconds& submitting) {
  HEADRACE_TRY_STATUS(space_->start(stream_));
  const Nanoseconds begin = system_clock().now();
  const CUresult result = submit();
  submitting += system_clock().now() - begin;
  HEADRACE_TRY_STATUS(space_->gpu().ok(result, "cannot copy"));
  HEADRACE_TRY_STATUS(space_->stop(stream_));
  HEADRACE_TRY_STATUS(space_->wait(stream_));
  return space_->between(stream_.start, stream_.end);
}

Result<Sample> Batches::sample() {
  Nanoseconds submitting{0};
  Nanoseconds copying{0};
  double times = 0;
  const CpuTime cpu = CpuTime::of_process();
  for (unsigned i = 0; i < kMostSubmissions && copying < kSubmittedFor; ++i) {
    HEADRACE_TRY(const Nanoseconds time, once(submitting));
    copying += time;
    ++times;
  }
  const double copies = times * static_cast<double>(setting_.count);
  const double bytes = copies * static_cast<double>(setting_.bytes.value);
  return Sample{
      .value = static_cast<double>(submitting.count()) / copies,
      .details = {{"bandwidth", bytes / seconds(copying)}, {"cpu_s_per_gb", cpu.per_gb(bytes)}}};
}

}  // namespace

bool gathers(Bytes bytes) { return fits_gather({.bytes = bytes.value}); }

Prepared prepare_batches(const GpuSetting& setting, Random& random) {
  return prepared<Batches>(setting, random);
}

}  // namespace headrace::experiment_gpu
