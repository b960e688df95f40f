// SPDX-License-Identifier: Apache-2.0
// Reads of a network's layer by a GPU from its own memory.
#include <algorithm>
#include <array>
#include <chrono>

#include "benchmarks/layer/layer.h"
#include "core/fail.h"
#include "core/fork.h"
#include "headrace/buffer.h"
#include "measure/instruments/gpu/gpu_session.h"

namespace headrace {
namespace {

using namespace cuda;

constexpr std::uint64_t kElement = 16;  // of the wide kernel
constexpr unsigned kThreads = 256;
constexpr Nanoseconds kLimit = std::chrono::seconds{60};
// Blocks per multiprocessor: those of the layer, and others that may read faster.
constexpr std::array kGrids = {8U, 2U, 4U, 16U};

// Sum of words from number `first` on, where word i is i + 1; modulo 2^32, as the kernel sums.
std::uint32_t sum_of(std::uint64_t first, std::uint64_t count) {
  const auto below = [](std::uint64_t n) {  // 0 + 1 + ... + (n - 1)
    return n % 2 == 0 ? n / 2 * (n - 1) : (n - 1) / 2 * n;
  };
  return static_cast<std::uint32_t>(below(first + count + 1) - below(first + 1));
}

// The memory, and the kernels that run on it.
class Reader {
 public:
  Reader(GpuSession& gpu, CUdeviceptr memory, Bytes size)
      : gpu_(gpu), memory_(memory), size_(size) {}

  Status prepare() {
    HEADRACE_TRY(read_, gpu_.kernel(kReadWide));
    HEADRACE_TRY(sum_, gpu_.word());
    HEADRACE_TRY(stream_, gpu_.stream());
    HEADRACE_TRY(start_, gpu_.event());
    HEADRACE_TRY(end_, gpu_.event());
    HEADRACE_TRY(processors_, gpu_.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
    HEADRACE_TRY(const CUfunction write, gpu_.kernel(kWriteNarrow));
    CUdeviceptr data = memory_;
    std::uint64_t count = size_.value / 4;
    std::uint32_t value = 1;
    std::array<void*, 3> parameters{&data, &count, &value};
    HEADRACE_TRY_STATUS(launch(write, kGrids[0], parameters.data()));
    return wait();
  }
  unsigned blocks(unsigned grid) const { return static_cast<unsigned>(processors_) * grid; }

  // Reads `bytes` from `from` on, wrapping to the beginning; returns the time, and whether the sum
  // was right.
  Result<GpuLayerRun> run(std::uint64_t from, std::uint64_t bytes, unsigned grid) {
    const Driver& driver = gpu_.driver();
    HEADRACE_TRY_STATUS(gpu_.ok(driver.cuMemsetD8Async(sum_, 0, 4, stream_), "cannot begin"));
    HEADRACE_TRY_STATUS(gpu_.ok(driver.cuEventRecord(start_, stream_), "no event"));
    std::uint32_t right = 0;
    for (std::uint64_t left = bytes; left > 0;) {
      const std::uint64_t now = std::min(left, size_.value - from);
      CUdeviceptr data = memory_ + from;
      std::uint64_t count = now / kElement;
      std::array<void*, 3> parameters{&data, &count, &sum_};
      HEADRACE_TRY_STATUS(launch(read_, grid, parameters.data()));
      right += sum_of(from / 4, now / 4);
      left -= now;
      from = 0;
    }
    HEADRACE_TRY_STATUS(wait());
    float milliseconds = 0;
    HEADRACE_TRY_STATUS(
        gpu_.ok(driver.cuEventElapsedTime(&milliseconds, start_, end_), "cannot tell the time"));
    std::uint32_t found = 0;
    HEADRACE_TRY_STATUS(
        gpu_.ok(driver.cuMemcpyDtoHAsync_v2(&found, sum_, sizeof found, stream_), "cannot copy"));
    HEADRACE_TRY_STATUS(wait());
    return GpuLayerRun{.blocks = blocks(grid),
                       .time = Nanoseconds{static_cast<std::int64_t>(1e6 * milliseconds)},
                       .correct = found == right};
  }

 private:
  Status launch(CUfunction kernel, unsigned grid, void** parameters) {
    return gpu_.ok(gpu_.driver().cuLaunchKernel(kernel, blocks(grid), 1, 1, kThreads, 1, 1, 0,
                                                stream_, parameters, nullptr),
                   "cannot run the kernel");
  }
  Status wait() {
    HEADRACE_TRY_STATUS(gpu_.ok(gpu_.driver().cuEventRecord(end_, stream_), "no event"));
    return gpu_.wait(end_, kLimit);
  }

  GpuSession& gpu_;
  const CUdeviceptr memory_;
  const Bytes size_;
  CUfunction read_ = nullptr;
  CUdeviceptr sum_ = 0;
  CUstream stream_ = nullptr;
  CUevent start_ = nullptr;
  CUevent end_ = nullptr;
  int processors_ = 0;
};

Result<const Node*> gpu_of(const Machine& machine, NodeId id) {
  const Node* const node = machine.find(id);
  if (node != nullptr && node->gpu) return node;
  return fail(ErrorCode::absent, "node {} is no GPU's memory; headrace topo shows which are",
              raw(id));
}

// The kernels' address of the memory. A GPU that is a NUMA node reaches its memory by the host's
// addresses.
Result<CUdeviceptr> address_of(const Buffer& memory, const Device& device) {
  if (const auto address = memory.device_address()) return *address;
  if (device.pageable_access) return reinterpret_cast<std::uintptr_t>(memory.bytes().data());
  return fail(
      ErrorCode::unsupported,
      "{} does not reach its own memory by addresses of the host; look at nvidia-smi -q for "
      "its addressing mode",
      device.name);
}

}  // namespace

Result<GpuLayers> run_layers_on_gpu(const Machine& machine, const GpuLayerWork& work,
                                    const ExperimentContext& context) {
  if (work.memory < 1_MiB || work.memory.value % (1_MiB).value != 0 ||
      work.bytes.value < kElement) {
    return fail(ErrorCode::invalid, "{} in {} of memory; give 16 bytes or more in whole MiB",
                to_string(work.bytes), to_string(work.memory));
  }
  HEADRACE_TRY(const Node* node, gpu_of(machine, work.gpu));
  HEADRACE_TRY(const Driver* found, driver());
  HEADRACE_TRY(const Device device,
               find_device(*found, node->gpu->uuid, node->gpu->pci, node->name));
  HEADRACE_TRY(auto memory, allocate(machine, work.memory, Placement::on(work.gpu)));
  HEADRACE_TRY(const CUdeviceptr address, address_of(*memory, device));
  HEADRACE_TRY(const auto gpu, GpuSession::open(*found, device));
  GpuLayers result{
      .device = device.name, .emulated = device.emulated, .threads_per_block = kThreads};
  Reader reader(*gpu, address, work.memory);
  const auto run_all = [&]() -> Status {
    HEADRACE_TRY_STATUS(reader.prepare());
    const std::uint64_t bytes = work.bytes.value / kElement * kElement;
    std::uint64_t at = 0;
    for (unsigned done = 0; done < work.runs && !context.stop(); ++done) {
      context.progress(done, work.runs);
      for (const unsigned grid : kGrids) {
        HEADRACE_TRY(const GpuLayerRun run, reader.run(at, bytes, grid));
        (grid == kGrids[0] ? result.layers : result.others).push_back(run);
        at = (at + bytes) % work.memory.value;
      }
    }
    return {};
  };
  Status status = run_all();
  if (gpu->stuck()) abandon(std::move(memory));  // the kernel may still read it
  HEADRACE_TRY_STATUS(std::move(status));
  return result;
}

}  // namespace headrace
