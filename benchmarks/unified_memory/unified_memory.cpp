// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/unified_memory/unified_memory.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>
#include <vector>

#include "benchmarks/unified_memory/shared_array.h"
#include "core/fail.h"
#include "measure/instruments/gpu/managed_memory.h"
#include "measure/instruments/worker_pool.h"

namespace headrace {
namespace {

using namespace cuda;

// Ten times slower than any published result (0.5 GiB/s).
Nanoseconds limit_for(Bytes size) {
  return std::chrono::seconds{60 + 20 * static_cast<std::int64_t>(size.value >> 30)};
}

Status check(const UnifiedMemoryCase& asked) {
  if (asked.size < 1_MiB || asked.size.value % (1_MiB).value != 0) {
    return fail(ErrorCode::invalid, "an array of {}; give whole MiB", to_string(asked.size));
  }
  if (asked.runs == 0 || asked.streams == 0) {
    return fail(ErrorCode::invalid, "no run or no stream; give 1 or more");
  }
  const bool advised = asked.accessed_by || asked.read_mostly || asked.preferred_location_cpu;
  if (!asked.managed && (advised || asked.prefetch_block)) {
    return fail(ErrorCode::invalid, "advice and prefetching are for managed memory");
  }
  if (asked.prefetch_block &&
      (*asked.prefetch_block < 1_MiB || asked.prefetch_block->value % (1_MiB).value != 0)) {
    return fail(ErrorCode::invalid, "blocks of {} to prefetch; give whole MiB",
                to_string(*asked.prefetch_block));
  }
  return {};
}

// Blocks of 256 threads that a multiprocessor surely runs at the same time: 128 of its 65536
// registers per thread are enough for any compiler (ptxas 12.9 gives the wide kernels at most 63,
// from sm_70 to sm_100).
constexpr unsigned kSurelyResident = 2;

// The node of the CPUs nearest to the GPU; nullptr: unknown.
const Node* nearest(const Machine& machine, const GpuAttributes& gpu, const Device& device) {
  if (gpu.host) return machine.find(*gpu.host);
  return device.host_node ? machine.find(NodeId{*device.host_node}) : nullptr;
}

// The node whose CPUs run the experiment.
Result<const Node*> runs_on(const Machine& machine, const Device& device,
                            const UnifiedMemoryCase& asked) {
  const Node* const near = nearest(machine, discovered(machine, device), device);
  if (!asked.node) return near;
  const Node* const node = machine.find(*asked.node);
  if (node == nullptr || !node->byte_addressable()) {
    return fail(ErrorCode::absent, "no memory node {} of the host; headrace topo shows them",
                raw(*asked.node));
  }
  return instruments::usable_cpus(node).empty() ? near : node;
}

// Word i is i + `first`.
void fill(std::span<std::uint32_t> words, std::uint32_t first) {
  for (std::uint32_t& word : words) word = first++;
}

std::uint32_t sum_of_filled(std::uint64_t count, std::uint32_t first) {
  const std::uint64_t even = count % 2 == 0 ? count : count - 1;
  const std::uint64_t odd = count % 2 == 0 ? count - 1 : count;
  return static_cast<std::uint32_t>(even / 2 * odd + count * first);
}

// Launches kernels on the array, and checks their results.
class Runner {
 public:
  Runner(GpuSession& gpu, const SharedArray& array, const UnifiedMemoryCase& asked)
      : gpu_(gpu), array_(array), asked_(asked), limit_(limit_for(asked.size)) {}

  Status prepare(UnifiedMemoryResult& result);
  Result<Nanoseconds> run(std::uint32_t value);
  // The kernel's sum of its reads in the last run.
  Result<std::uint32_t> sum();
  bool holds(std::uint32_t value) const;

 private:
  Status launch(std::uint64_t offset, std::uint64_t size, std::uint32_t value, CUstream stream);
  Result<Nanoseconds> longest() const;

  GpuSession& gpu_;
  const SharedArray& array_;
  const UnifiedMemoryCase& asked_;
  const Nanoseconds limit_;
  CUfunction kernel_ = nullptr;
  CUdeviceptr sum_ = 0;
  unsigned blocks_ = 0;
  unsigned threads_ = 0;
  std::vector<CUstream> streams_;
  std::vector<CUevent> starts_;
  std::vector<CUevent> ends_;
};

Status Runner::prepare(UnifiedMemoryResult& result) {
  const char* name = asked_.write ? (asked_.wide ? kWriteWide : kWriteNarrow)
                                  : (asked_.wide ? kReadWide : kReadNarrow);
  HEADRACE_TRY(kernel_, gpu_.kernel(name));
  HEADRACE_TRY(const int processors, gpu_.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  threads_ = asked_.wide ? 256 : 128;
  HEADRACE_TRY(const auto resident, gpu_.resident_blocks(kernel_, threads_));
  // The original uses a fixed number of blocks; wide kernels use as many as fit.
  const unsigned fit = std::max(1U, resident.value_or(kSurelyResident));
  blocks_ = static_cast<unsigned>(processors) * (asked_.wide ? fit : std::min(2U, fit));
  const std::uint64_t each = asked_.wide ? (asked_.write ? 16 : 64) : 4;
  result.blocks = blocks_;
  result.threads_per_block = threads_;
  result.in_flight = Bytes{each * threads_ * blocks_};
  HEADRACE_TRY(sum_, gpu_.word());
  for (unsigned i = 0; i < (asked_.prefetch_block ? asked_.streams : 1); ++i) {
    HEADRACE_TRY(streams_.emplace_back(), gpu_.stream());
    HEADRACE_TRY(starts_.emplace_back(), gpu_.event());
    HEADRACE_TRY(ends_.emplace_back(), gpu_.event());
  }
  return {};
}

Status Runner::launch(std::uint64_t offset, std::uint64_t size, std::uint32_t value,
                      CUstream stream) {
  CUdeviceptr data = array_.address() + offset;
  std::uint64_t count = size / (asked_.wide ? 16 : 4);
  // A written word is `value` plus its index in the array; for the wide kernel `value`.
  std::uint32_t written = value + (asked_.wide ? 0 : static_cast<std::uint32_t>(offset / 4));
  std::array<void*, 3> parameters{
      &data, &count, asked_.write ? static_cast<void*>(&written) : static_cast<void*>(&sum_)};
  return gpu_.ok(gpu_.driver().cuLaunchKernel(kernel_, blocks_, 1, 1, threads_, 1, 1, 0, stream,
                                              parameters.data(), nullptr),
                 "cannot run the kernel");
}

Result<Nanoseconds> Runner::run(std::uint32_t value) {
  const Driver& driver = gpu_.driver();
  HEADRACE_TRY_STATUS(
      gpu_.ok(driver.cuMemsetD8Async(sum_, 0, 4, streams_.front()), "cannot begin"));
  HEADRACE_TRY_STATUS(gpu_.ok(driver.cuEventRecord(ends_.front(), streams_.front()), "no event"));
  HEADRACE_TRY_STATUS(gpu_.wait(ends_.front(), limit_));
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    HEADRACE_TRY_STATUS(gpu_.ok(driver.cuEventRecord(starts_[i], streams_[i]), "no event"));
  }
  if (asked_.prefetch_block) {
    const std::uint64_t step = asked_.prefetch_block->value;
    std::size_t turn = 0;
    for (std::uint64_t at = 0; at < asked_.size.value; at += step) {
      const std::uint64_t size = std::min(step, asked_.size.value - at);
      const CUstream stream = streams_[turn++ % streams_.size()];
      HEADRACE_TRY_STATUS(array_.prefetch(at, size, stream));
      HEADRACE_TRY_STATUS(launch(at, size, value, stream));
    }
  } else {
    HEADRACE_TRY_STATUS(launch(0, asked_.size.value, value, streams_.front()));
  }
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    HEADRACE_TRY_STATUS(gpu_.ok(driver.cuEventRecord(ends_[i], streams_[i]), "no event"));
  }
  for (CUevent end : ends_) HEADRACE_TRY_STATUS(gpu_.wait(end, limit_));
  return longest();
}

// From the earliest start to the latest end, as in the original.
Result<Nanoseconds> Runner::longest() const {
  float most = 0;
  for (CUevent start : starts_) {
    for (CUevent end : ends_) {
      float milliseconds = 0;
      HEADRACE_TRY_STATUS(gpu_.ok(gpu_.driver().cuEventElapsedTime(&milliseconds, start, end),
                                  "cannot tell the time"));
      most = std::max(most, milliseconds);
    }
  }
  return Nanoseconds{static_cast<std::int64_t>(static_cast<double>(most) * 1e6)};
}

Result<std::uint32_t> Runner::sum() {
  std::uint32_t found = 0;
  const Driver& driver = gpu_.driver();
  HEADRACE_TRY_STATUS(gpu_.ok(
      driver.cuMemcpyDtoHAsync_v2(&found, sum_, sizeof found, streams_.front()), "cannot copy"));
  HEADRACE_TRY_STATUS(gpu_.ok(driver.cuEventRecord(ends_.front(), streams_.front()), "no event"));
  HEADRACE_TRY_STATUS(gpu_.wait(ends_.front(), limit_));
  return found;
}

bool Runner::holds(std::uint32_t value) const {
  const auto words = array_.words();
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] != value + (asked_.wide ? 0 : static_cast<std::uint32_t>(i))) return false;
  }
  return true;
}

Status run_all(Runner& runner, const SharedArray& array, const UnifiedMemoryCase& asked,
               const ExperimentContext& context, UnifiedMemoryResult& result) {
  std::uint32_t filled = 0;
  std::uint32_t written = 0;
  for (unsigned number = 0; number < asked.runs && !context.stop(); ++number) {
    if (number == 0 || asked.touch_on_host) fill(array.words(), ++filled);
    written = 0x10000 + number;  // differs from all values that the host writes
    UnifiedMemoryRun run;
    run.before = array.residency();
    HEADRACE_TRY(run.time, runner.run(written));
    run.after = array.residency();
    if (!asked.write) {
      HEADRACE_TRY(const std::uint32_t sum, runner.sum());
      run.correct = sum == sum_of_filled(array.words().size(), filled);
    }
    result.runs.push_back(std::move(run));
    context.progress(number + 1, asked.runs);
  }
  if (asked.write && !result.runs.empty()) result.written = runner.holds(written);
  return {};
}

}  // namespace

Result<UnifiedMemoryResult> run_unified_memory(const Machine& machine,
                                               const UnifiedMemoryCase& asked,
                                               const ExperimentContext& context) {
  HEADRACE_TRY_STATUS(check(asked));
  HEADRACE_TRY(const Driver* found, driver());
  HEADRACE_TRY(const Device device, numbered_device(*found, asked.device));
  HEADRACE_TRY(const Node* node, runs_on(machine, device, asked));
  const instruments::BoundToNode bound(node);
  HEADRACE_TRY(const auto gpu, GpuSession::open(*found, device));
  UnifiedMemoryResult result{.device = device.name,
                             .emulated = device.emulated,
                             .paradigm = discovered(machine, device).paradigm};
  if (bound.bound()) result.node = node->id;
  HEADRACE_TRY(result.device_free, gpu->free_memory());
  UnifiedMemoryCase made = asked;
  if (!made.node && node != nullptr) made.node = node->id;
  HEADRACE_TRY(const auto array, SharedArray::make(machine, *gpu, device, made));
  result.advice_confirmed = array->advice_confirmed(asked);
  Runner runner(*gpu, *array, asked);
  HEADRACE_TRY_STATUS(runner.prepare(result));
  HEADRACE_TRY_STATUS(run_all(runner, *array, asked, context, result));
  return result;
}

}  // namespace headrace
