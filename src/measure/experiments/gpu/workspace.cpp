// SPDX-License-Identifier: Apache-2.0
#include "measure/experiments/gpu/workspace.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "core/fail.h"
#include "core/fork.h"
#include "measure/session/experiment.h"

namespace headrace::experiment_gpu {

using namespace cuda;

namespace {

// A sample takes some ten milliseconds; only a GPU that hangs, or is busy with other work, takes
// this long.
constexpr Nanoseconds kLimit = std::chrono::seconds{30};

}  // namespace

std::vector<const Node*> host_nodes(const Machine& machine) {
  std::vector<const Node*> nodes = session::memory_nodes(machine);
  std::erase_if(nodes, [](const Node* node) { return node->kind == NodeKind::gpu; });
  return nodes;
}

Result<std::shared_ptr<GpuTarget>> GpuTarget::find(const Machine& machine, const Node& node) {
  HEADRACE_TRY(const Driver* driver, cuda::driver());
  const GpuAttributes gpu = node.gpu.value_or(GpuAttributes{});
  HEADRACE_TRY(Device device, find_device(*driver, gpu.uuid, gpu.pci, node.name));
  const auto any = host_nodes(machine);
  if (any.empty()) return fail(ErrorCode::absent, "the machine has no memory of CPUs");
  return std::shared_ptr<GpuTarget>(new GpuTarget{.machine = machine,
                                                  .node = node,
                                                  .driver = *driver,
                                                  .device = std::move(device),
                                                  .host = gpu.host.value_or(any.front()->id)});
}

int GpuTarget::attribute(CUdevice_attribute what) const {
  int value = 0;
  const CUresult result = driver.cuDeviceGetAttribute(&value, what, device.ordinal);
  return result == CUDA_SUCCESS ? value : 0;
}

std::optional<Bytes> GpuTarget::l2() const {
  const int bytes = attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  return bytes > 0 ? std::optional(Bytes{static_cast<std::uint64_t>(bytes)}) : std::nullopt;
}

Bytes GpuTarget::beyond_caches() const {
  Bytes largest = l2().value_or(0_B);
  for (const CacheLevel& cache : machine.caches) largest = std::max(largest, cache.size);
  const Bytes wanted = std::clamp(largest * 4, 16_MiB, 1_GiB);
  const Bytes room = std::max(device.capacity / 8, 1_MiB);
  return Bytes{std::min(std::bit_ceil(wanted.value), std::bit_floor(room.value))};
}

Result<std::shared_ptr<const Context>> GpuTarget::use() {
  if (hung) return Unexpected(*hung);
  if (!context) {
    HEADRACE_TRY(context, Context::of(driver, device.ordinal));
  }
  const CurrentContext current(*context);
  std::size_t free = 0, total = 0;
  CUresult result = current.result();
  if (result == CUDA_SUCCESS) result = driver.cuMemGetInfo_v2(&free, &total);
  if (result == CUDA_SUCCESS) return context;
  auto lost = fail_cuda(driver, result, node.name + " was lost");
  lost.error().message += "; look at nvidia-smi and the kernel's log, and measure it again";
  return lost;
}

namespace {

template <class Spare>
auto smallest_of(Spare& spare, const typename Spare::key_type& kind) {
  const auto [first, last] = spare.equal_range(kind);
  return std::min_element(first, last, [](const auto& a, const auto& b) {
    return a.second->size() < b.second->size();
  });
}

}  // namespace

GpuWorkspace::GpuWorkspace(std::shared_ptr<GpuTarget> target)
    : target_(std::move(target)), near_(target_->machine.find(target_->host)) {}

Result<std::unique_ptr<GpuWorkspace>> GpuWorkspace::open(std::shared_ptr<GpuTarget> target) {
  HEADRACE_TRY(const auto context, target->use());
  std::unique_ptr<GpuWorkspace> workspace(new GpuWorkspace(std::move(target)));
  HEADRACE_TRY(workspace->gpu_, GpuSession::open(workspace->driver(), workspace->target_->device));
  HEADRACE_TRY(const Bytes free, workspace->gpu_->free_memory());
  workspace->quarter_ = free / 4;
  return workspace;
}

GpuWorkspace::~GpuWorkspace() {
  if (!gpu_) return;
  if (gpu_->stuck()) {
    // The GPU may still use it, and freeing would wait for that.
    abandon(std::move(buffers_));
    abandon(std::move(foreign_));
    return;
  }
  // Two at most are used at a time.
  for (auto& [kind, buffer] : buffers_) {
    target_->spare.emplace(kind, std::move(buffer));
    while (target_->spare.count(kind) > 2) target_->spare.erase(smallest_of(target_->spare, kind));
  }
  for (const CUdeviceptr address : memory_) driver().cuMemFree_v2(address);
  for (const Foreign& each : foreign_) {
    const CurrentContext current(*each.context);
    if (current.result() == CUDA_SUCCESS) driver().cuMemFree_v2(each.address);
  }
}

Result<Bytes> GpuWorkspace::area(Bytes wanted, Bytes piece, unsigned parts) const {
  const Bytes part = quarter_ / parts;
  const Bytes bytes = piece * (std::max(std::min(wanted, part), piece) / piece);
  if (bytes <= part) return bytes;
  return fail(ErrorCode::exhausted,
              "{} has {} free, of which a quarter is used at most: too little for {}",
              target_->node.name, to_string(quarter_ * 4), to_string(piece * parts));
}

Result<CUdeviceptr> GpuWorkspace::on_gpu(Bytes bytes) {
  CUdeviceptr address = 0;
  HEADRACE_TRY_STATUS(
      gpu_->ok(driver().cuMemAlloc_v2(&address, bytes.value), "cannot allocate on the GPU"));
  memory_.push_back(address);
  return address;
}

Result<CUdeviceptr> GpuWorkspace::on_other(GpuTarget& other, Bytes bytes) {
  HEADRACE_TRY(const auto context, other.use());
  HEADRACE_TRY(const auto own, target_->use());
  enable_peer_access(*own, *context);
  const CurrentContext current(*context);
  CUresult result = current.result();
  std::size_t free = 0, total = 0;
  if (result == CUDA_SUCCESS) result = driver().cuMemGetInfo_v2(&free, &total);
  if (result == CUDA_SUCCESS && Bytes{free} / 4 < bytes) {
    return fail(ErrorCode::exhausted, "{} has {} free, of which a quarter is used at most",
                other.node.name, to_string(Bytes{free}));
  }
  CUdeviceptr address = 0;
  if (result == CUDA_SUCCESS) result = driver().cuMemAlloc_v2(&address, bytes.value);
  HEADRACE_TRY_STATUS(gpu_->ok(result, "cannot allocate on " + other.node.name));
  foreign_.push_back({context, address});
  return address;
}

// Returns the spare memory if it is large enough; otherwise replaces it.
Result<std::span<std::byte>> GpuWorkspace::on_host(NodeId node, Bytes bytes, bool pinned) {
  const std::pair kind(node, pinned);
  auto& spare = target_->spare;
  const auto [first, last] = spare.equal_range(kind);
  const auto found =
      std::find_if(first, last, [&](const auto& each) { return each.second->size() >= bytes; });
  if (found != last) {
    buffers_.emplace_back(kind, std::move(found->second));
    spare.erase(found);
  } else {
    if (first != last) spare.erase(smallest_of(spare, kind));
    Placement placement = Placement::on(node);
    placement.pin = pinned;
    HEADRACE_TRY(auto buffer, allocate_for_cpus(target_->machine, bytes, placement));
    std::ranges::fill(buffer->bytes(), std::byte{0x5a});  // what is timed is no zeros
    buffers_.emplace_back(kind, std::move(buffer));
  }
  return buffers_.back().second->bytes().first(bytes.value);
}

Result<std::span<std::byte>> GpuWorkspace::managed(Bytes bytes) {
  CUdeviceptr address = 0;
  HEADRACE_TRY_STATUS(
      gpu_->ok(driver().cuMemAllocManaged(&address, bytes.value, CU_MEM_ATTACH_GLOBAL),
               "cannot allocate managed memory"));
  memory_.push_back(address);
  return std::span(reinterpret_cast<std::byte*>(address), bytes.value);
}

Result<CUdeviceptr> GpuWorkspace::address_of(std::span<const std::byte> memory) const {
  const auto own = reinterpret_cast<std::uintptr_t>(memory.data());
  CUdeviceptr address = 0;
  auto* const host = const_cast<std::byte*>(memory.data());
  if (driver().cuMemHostGetDevicePointer_v2(&address, host, 0) == CUDA_SUCCESS) return address;
  if (target_->device.pageable_access) return own;
  return fail(ErrorCode::unsupported, "the GPU does not reach this memory of the host");
}

Result<std::uint64_t> GpuWorkspace::checksum_of(CUdeviceptr address, Bytes bytes) {
  HEADRACE_TRY(const CUfunction kernel, gpu_->kernel(kChecksum));
  HEADRACE_TRY(const int processors, gpu_->attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  HEADRACE_TRY(CUdeviceptr sum, on_gpu(Bytes{sizeof(std::uint64_t)}));
  HEADRACE_TRY(const TimedStream stream, this->stream());
  std::uint64_t count = bytes.value / sizeof(std::uint64_t);
  std::array<void*, 3> parameters{&address, &count, &sum};
  HEADRACE_TRY_STATUS(gpu_->ok(
      driver().cuMemsetD8Async(sum, 0, sizeof(std::uint64_t), stream.stream), "cannot begin"));
  HEADRACE_TRY_STATUS(
      gpu_->ok(driver().cuLaunchKernel(kernel, static_cast<unsigned>(processors) * 4, 1, 1, 256, 1,
                                       1, 0, stream.stream, parameters.data(), nullptr),
               "cannot run the kernel"));
  HEADRACE_TRY_STATUS(stop(stream));
  HEADRACE_TRY_STATUS(wait(stream));
  std::uint64_t found = 0;
  HEADRACE_TRY_STATUS(gpu_->ok(
      driver().cuMemcpyDtoHAsync_v2(&found, sum, sizeof found, stream.stream), "cannot copy"));
  HEADRACE_TRY_STATUS(stop(stream));
  HEADRACE_TRY_STATUS(wait(stream));
  return found;
}

Result<TimedStream> GpuWorkspace::stream() {
  TimedStream made;
  HEADRACE_TRY(made.stream, gpu_->stream());
  HEADRACE_TRY(made.start, gpu_->event());
  HEADRACE_TRY(made.end, gpu_->event());
  return made;
}

Status GpuWorkspace::start(const TimedStream& stream) const {
  return gpu_->ok(driver().cuEventRecord(stream.start, stream.stream), "cannot record an event");
}

Status GpuWorkspace::stop(const TimedStream& stream) const {
  return gpu_->ok(driver().cuEventRecord(stream.end, stream.stream), "cannot record an event");
}

Status GpuWorkspace::wait(const TimedStream& stream) {
  Status status = gpu_->wait(stream.end, kLimit);
  if (gpu_->stuck()) target_->hung = status.error();
  return status;
}

Result<Nanoseconds> GpuWorkspace::between(CUevent start, CUevent end) const {
  float milliseconds = 0;
  HEADRACE_TRY_STATUS(
      gpu_->ok(driver().cuEventElapsedTime(&milliseconds, start, end), "cannot tell the time"));
  return Nanoseconds{static_cast<std::int64_t>(static_cast<double>(milliseconds) * 1e6)};
}

namespace {

std::span<std::uint64_t> words_of(std::span<std::byte> memory) {
  return {reinterpret_cast<std::uint64_t*>(memory.data()), memory.size() / sizeof(std::uint64_t)};
}

// The finalizer of SplitMix64.
std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace

Bytes verified_of(Bytes piece) {
  constexpr Bytes kEnough = 16_MiB;
  return piece >= kEnough ? piece : piece * (kEnough / piece);
}

std::uint64_t checksum(std::span<const std::byte> memory) {
  std::uint64_t sum = 0;
  std::uint64_t place = 0;
  const std::span all(const_cast<std::byte*>(memory.data()), memory.size());
  for (const std::uint64_t word : words_of(all)) sum += mix(word + mix(place++));
  return sum;
}

}  // namespace headrace::experiment_gpu
