// SPDX-License-Identifier: Apache-2.0
#include <optional>

#include "backend/cuda/engines/engines.h"
#include "backend/storage/storage.h"
#include "conformance/suite.h"
#include "headrace/buffer.h"
#include "tests/support/fake_gpu.h"

namespace headrace::conformance {
namespace {

// The GPUs of the test that runs: made where its backend is opened, first of all.
std::optional<test::FakeGpu>& gpus() {
  static std::optional<test::FakeGpu> here;
  return here;
}

class GpuSide final : public Side {
 public:
  explicit GpuSide(NodeId node, Bytes bytes)
      : buffer_(*allocate(gpus()->machine, std::max(bytes, 1_B), Placement::on(node))),
        range_(*buffer_->device_address(), bytes, node) {}
  const Object& object() const override { return range_; }
  void write(std::uint64_t offset, std::span<const std::byte> bytes) override {
    test::write_gpu(range_, offset, bytes);
  }
  std::vector<std::byte> read(std::uint64_t offset, std::size_t length) const override {
    return test::read_gpu(range_, offset, length);
  }

 private:
  std::unique_ptr<Buffer> buffer_;
  DeviceRange range_;
};

class PinnedSide final : public Side {
 public:
  explicit PinnedSide(Bytes bytes) : buffer_(*allocate(gpus()->machine, bytes, pinned())) {}
  const Object& object() const override { return *buffer_; }
  void write(std::uint64_t offset, std::span<const std::byte> bytes) override {
    std::copy(bytes.begin(), bytes.end(), buffer_->memory() + offset);
  }
  std::vector<std::byte> read(std::uint64_t offset, std::size_t length) const override {
    return {buffer_->memory() + offset, buffer_->memory() + offset + length};
  }

 private:
  static Placement pinned() {
    Placement placement = Placement::on(test::kDram);
    placement.strict = false;
    placement.pin = true;
    return placement;
  }
  std::unique_ptr<Buffer> buffer_;
};

MakeSide on_gpu(NodeId node = test::kGpu) {
  return [node](Bytes bytes) { return std::make_unique<GpuSide>(node, bytes); };
}

MakeSide pinned() {
  return [](Bytes bytes) { return std::make_unique<PinnedSide>(bytes); };
}

// Copies files through a storage backend of its own.
class WithStorage final : public Backend {
 public:
  explicit WithStorage(CudaOptions options)
      : storage_(*open_storage(gpus()->machine, {test::kSsd})) {
    options.storage = storage_.get();
    std::vector<EngineId> engines;
    for (const Engine& engine : gpus()->machine.engines) {
      if (engine.kind == EngineKind::gpu) engines.push_back(engine.id);
    }
    cuda_ = *open_cuda(gpus()->machine, std::move(engines), options);
  }
  const Capabilities& capabilities() const override { return cuda_->capabilities(); }
  Result<std::size_t> submit(std::span<const Piece> pieces, Completion& completion) override {
    return cuda_->submit(pieces, completion);
  }

 private:
  std::unique_ptr<Backend> storage_;
  std::unique_ptr<Backend> cuda_;
};

struct Gpu {
  std::string settings = "latency=20us,memory=512M";
  std::string version = {};
  CudaOptions options = {};
  bool two = false;
};

Case cuda_case(std::string name, MakeSide source, MakeSide destination, const Gpu& gpu = {}) {
  return {.name = std::move(name),
          .open =
              [gpu] {
                gpus().emplace(gpu.settings, gpu.version);
                if (gpu.two && !gpus()->has_two()) return std::unique_ptr<WithStorage>();
                return std::make_unique<WithStorage>(gpu.options);
              },
          .engine = test::kGpuEngine,
          .source = std::move(source),
          .destination = std::move(destination),
          .skipped = gpu.two ? test::kOneGpu : ""};
}

const Gpu kTwoOf128{.settings = "devices=2,memory=512M", .version = "12.8", .two = true};
const Gpu kGathering{.options = {.gather = GatherLimit{.bytes = 1_MiB, .count = 2}}};
const Gpu kFewSlots{.options = {.max_pieces = 3, .slots = 1, .slot = 64_KiB}};
const Gpu kFewSlotsOf122{.version = "12.2", .options = kFewSlots.options};
const MakeSide kFile = file_of(test::small_machine());
const MakeSide kPlain = memory_on(test::kDram);

// All ways and directions, and each driver that copies batches in its own form.
INSTANTIATE_TEST_SUITE_P(
    Cuda, BackendConformance,
    testing::Values(cuda_case("PinnedToGpu", pinned(), on_gpu()),
                    cuda_case("GatheredToGpu", pinned(), on_gpu(), kGathering),
                    cuda_case("GatheredInside", on_gpu(), on_gpu(), kGathering),
                    cuda_case("PlainToGpu", kPlain, on_gpu()),
                    cuda_case("GpuToPlainFewSlots", on_gpu(), kPlain, kFewSlotsOf122),
                    cuda_case("GpuToGpu", on_gpu(), on_gpu(test::kOtherGpu), kTwoOf128),
                    cuda_case("FileToGpu", kFile, on_gpu()),
                    cuda_case("GpuToFileFewSlots", on_gpu(), kFile, kFewSlots)),
    case_name);

// The driver, but that it refuses some copies, all batches and all kernels.
cuda::Driver real;
cuda::Driver half_failing;

cuda::CUresult copy_or_fail(cuda::CUdeviceptr to, cuda::CUdeviceptr from, std::size_t bytes,
                            cuda::CUstream stream) {
  if (bytes % 3 == 0) return cuda::CUDA_ERROR_OUT_OF_MEMORY;
  return real.cuMemcpyAsync(to, from, bytes, stream);
}

cuda::CUresult fail_batch(cuda::CUdeviceptr*, cuda::CUdeviceptr*, std::size_t*, std::size_t,
                          cuda::CUmemcpyAttributes*, std::size_t*, std::size_t, cuda::CUstream) {
  return cuda::CUDA_ERROR_NOT_SUPPORTED;
}

cuda::CUresult fail_launch(cuda::CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                           unsigned, unsigned, cuda::CUstream, void**, void**) {
  return cuda::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
}

Case failing_case(std::string name, MakeSide source, MakeSide destination) {
  Case made = cuda_case(std::move(name), std::move(source), std::move(destination));
  made.open = [] {
    gpus().emplace("memory=512M");
    real = half_failing = **cuda::driver();
    half_failing.cuMemcpyAsync = copy_or_fail;
    half_failing.cuMemcpyBatchAsync_v2 = fail_batch;
    half_failing.cuLaunchKernel = fail_launch;
    return std::make_unique<WithStorage>(
        CudaOptions{.gather = kGathering.options.gather, .driver = &half_failing});
  };
  return made;
}

INSTANTIATE_TEST_SUITE_P(Cuda, FailingBackendConformance,
                         testing::Values(failing_case("PinnedToGpu", pinned(), on_gpu()),
                                         failing_case("GpuToPlain", on_gpu(), kPlain),
                                         failing_case("FileToGpu", kFile, on_gpu())),
                         case_name);

}  // namespace
}  // namespace headrace::conformance
