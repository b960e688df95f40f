// SPDX-License-Identifier: Apache-2.0
#include "measure/experiments/gpu/parts.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "core/fail.h"
#include "headrace/clock.h"

namespace headrace::experiment_gpu {

using namespace cuda;
using namespace session;

namespace {

// The size of one GPU read.
constexpr std::size_t kWordsPerLine = 128 / sizeof(std::uint64_t);
// A prime, so that no usual chain ends where it began, which would prove nothing.
constexpr std::uint64_t kSteps = 4099;

using Words = std::span<std::uint64_t>;

Words as_words(std::span<std::byte> memory) {
  return {reinterpret_cast<std::uint64_t*>(memory.data()), memory.size() / sizeof(std::uint64_t)};
}

// Makes a cycle through the first words of all lines: each word holds the position of the next.
void make_chain(Words words, Random& random) {
  std::vector<std::uint64_t> lines(words.size() / kWordsPerLine);
  std::iota(lines.begin(), lines.end(), std::uint64_t{0});
  for (std::size_t i = lines.size(); i > 1; --i) std::swap(lines[i - 1], lines[random.below(i)]);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::uint64_t next = lines[i + 1 == lines.size() ? 0 : i + 1];
    words[lines[i] * kWordsPerLine] = next * kWordsPerLine;
  }
}

std::uint64_t follow(const volatile std::uint64_t* words, std::uint64_t at, std::uint64_t steps) {
  for (std::uint64_t i = 0; i < steps; ++i) at = words[at];
  return at;
}

Sample sample_of(Nanoseconds time, const GpuWorkspace& space) {
  Sample sample{.value = static_cast<double>(time.count()) / static_cast<double>(kSteps)};
  if (const auto l2 = space.target().l2()) {
    sample.details["l2_bytes"] = static_cast<double>(l2->value);
  }
  return sample;
}

class ChaseByGpu final : public GpuProbe {
 public:
  using GpuProbe::GpuProbe;

  Status prepare(Random& random) override {
    HEADRACE_TRY(kernel_, space_->gpu().kernel(kChase));
    HEADRACE_TRY(stream_, space_->stream());
    copied_.stream = stream_.stream;
    HEADRACE_TRY(copied_.end, space_->gpu().event());
    HEADRACE_TRY(result_, space_->on_gpu(Bytes{sizeof(std::uint64_t)}));
    // The node of a chain on the GPU is the GPU, and CPUs may not be able to write there.
    const NodeId node = setting_.memory == kDevice ? space_->target().host : setting_.node;
    HEADRACE_TRY(const auto host, space_->on_host(node, setting_.bytes, true));
    HEADRACE_TRY(seen_, space_->on_host(node, Bytes{sizeof(std::uint64_t)}, true));
    words_ = as_words(host);
    make_chain(words_, random);
    if (setting_.memory != kDevice) {
      HEADRACE_TRY(address_, space_->address_of(host));
      return {};
    }
    HEADRACE_TRY(const Bytes area, space_->area(setting_.bytes, setting_.bytes, 1));
    HEADRACE_TRY(address_, space_->on_gpu(area));
    HEADRACE_TRY_STATUS(space_->gpu().ok(
        space_->driver().cuMemcpyHtoDAsync_v2(address_, host.data(), host.size(), stream_.stream),
        "cannot copy"));
    return {};
  }

  // Continues from the last end; the CPU follows the chain too, to check the end.
  Result<Sample> sample() override {
    std::uint64_t steps = kSteps;
    std::array<void*, 4> parameters{&address_, &at_, &steps, &result_};
    const Driver& driver = space_->driver();
    HEADRACE_TRY_STATUS(space_->start(stream_));
    HEADRACE_TRY_STATUS(
        space_->gpu().ok(driver.cuLaunchKernel(kernel_, 1, 1, 1, 1, 1, 1, 0, stream_.stream,
                                               parameters.data(), nullptr),
                         "cannot run the kernel"));
    HEADRACE_TRY_STATUS(space_->stop(stream_));
    HEADRACE_TRY_STATUS(space_->gpu().ok(
        driver.cuMemcpyDtoHAsync_v2(seen_.data(), result_, sizeof(std::uint64_t), stream_.stream),
        "cannot copy"));
    HEADRACE_TRY_STATUS(space_->stop(copied_));
    HEADRACE_TRY_STATUS(space_->wait(copied_));
    HEADRACE_TRY(const Nanoseconds time, space_->between(stream_.start, stream_.end));
    at_ = follow(words_.data(), at_, steps);
    if (as_words(seen_).front() != at_) return fail(ErrorCode::io, "the GPU read other numbers");
    return sample_of(time, *space_);
  }

 private:
  CUfunction kernel_ = nullptr;
  TimedStream stream_;
  TimedStream copied_;  // times the copy
  Words words_;
  std::span<std::byte> seen_;
  CUdeviceptr address_ = 0;
  CUdeviceptr result_ = 0;
  std::uint64_t at_ = 0;
};

class ChaseByCpu final : public GpuProbe {
 public:
  using GpuProbe::GpuProbe;

  Status prepare(Random& random) override {
    HEADRACE_TRY(const Bytes area, space_->area(setting_.bytes, setting_.bytes, 1));
    HEADRACE_TRY(const auto memory, space_->managed(area));
    HEADRACE_TRY(const TimedStream stream, space_->stream());
    words_ = as_words(memory);
    make_chain(words_, random);
    for (std::size_t i = 0; i < words_.size(); i += kWordsPerLine) chain_.push_back(words_[i]);
    const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
    const CUmemLocation gpu = gpu_location(space_->gpu().device());
    HEADRACE_TRY_STATUS(space_->gpu().ok(
        prefetch(space_->driver(), address, memory.size(), gpu, stream.stream), "cannot prefetch"));
    HEADRACE_TRY_STATUS(space_->stop(stream));
    return space_->wait(stream);
  }

  // The end must be that of the original chain.
  Result<Sample> sample() override {
    std::uint64_t right = at_;
    for (std::uint64_t i = 0; i < kSteps; ++i) right = chain_[right / kWordsPerLine];
    const Nanoseconds begin = system_clock().now();
    at_ = follow(words_.data(), at_, kSteps);
    const Nanoseconds time = system_clock().now() - begin;
    if (at_ != right) return fail(ErrorCode::io, "the CPU read other numbers than it wrote");
    return sample_of(time, *space_);
  }

 private:
  Words words_;
  std::vector<std::uint64_t> chain_;  // the first word of each line, in host memory
  std::uint64_t at_ = 0;
};

}  // namespace

bool host_reads_gpu(const GpuTarget& gpu) {
  return gpu.attribute(CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST) != 0;
}

Prepared prepare_chase(const GpuSetting& setting, Random& random) {
  return setting.by == kCpu ? prepared<ChaseByCpu>(setting, random)
                            : prepared<ChaseByGpu>(setting, random);
}

}  // namespace headrace::experiment_gpu
