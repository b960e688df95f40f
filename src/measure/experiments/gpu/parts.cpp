// SPDX-License-Identifier: Apache-2.0
// Many small copies, fragments, dependent loads, and allocations.
#include "measure/experiments/gpu/parts.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "core/fail.h"
#include "headrace/clock.h"
#include "headrace/mover.h"
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

namespace {

class Allocating final : public GpuProbe {
 public:
  using GpuProbe::GpuProbe;

  Result<Sample> sample() override {
    HEADRACE_TRY(const Nanoseconds time, setting_.by == kPlaced ? placed() : by_driver());
    const double mebibytes = static_cast<double>(setting_.bytes.value) / (1 << 20);
    return Sample{.value = static_cast<double>(time.count()) / mebibytes};
  }

 private:
  Result<Nanoseconds> placed() const {
    Placement placement = Placement::on(setting_.node);
    placement.pin = true;
    const Nanoseconds begin = system_clock().now();
    HEADRACE_TRY(const auto buffer,
                 allocate_for_cpus(space_->target().machine, setting_.bytes, placement));
    return system_clock().now() - begin;
  }

  Result<Nanoseconds> by_driver() const {
    const Driver& driver = space_->driver();
    void* memory = nullptr;
    const Nanoseconds begin = system_clock().now();
    const CUresult result =
        driver.cuMemHostAlloc(&memory, setting_.bytes.value, CU_MEMHOSTALLOC_PORTABLE);
    const Nanoseconds time = system_clock().now() - begin;
    HEADRACE_TRY_STATUS(space_->gpu().ok(result, "cuMemHostAlloc gives no memory"));
    HEADRACE_TRY_STATUS(
        space_->gpu().ok(driver.cuMemFreeHost(memory), "cuMemFreeHost takes nothing back"));
    return time;
  }
};

}  // namespace

Prepared prepare_allocation(const GpuSetting& setting, Random& random) {
  return prepared<Allocating>(setting, random);
}

}  // namespace headrace::experiment_gpu
