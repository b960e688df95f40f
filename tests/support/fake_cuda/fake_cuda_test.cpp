// SPDX-License-Identifier: Apache-2.0
// Tests the properties of a real driver that other tests rely on (README.md). The conformance suite
// and the tests of the backend show that copies work.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <vector>

#include "backend/cuda/cuda.h"
#include "support/fake_cuda/fake_library.h"

namespace headrace::cuda::fake {
namespace {

CUdeviceptr address_of(const void* at) { return reinterpret_cast<CUdeviceptr>(at); }

// A fake driver, with the primary context of device 0 current until the end of the scope.
struct Fake : FakeCudaLibrary {
  explicit Fake(const std::string& settings = "") : FakeCudaLibrary(settings) {}
  CUdeviceptr device_memory(std::size_t size) const {
    CUdeviceptr address = 0;
    EXPECT_EQ(cuda.cuMemAlloc_v2(&address, size), CUDA_SUCCESS);
    return address;
  }
  char* pinned(std::size_t size) const {
    void* address = nullptr;
    EXPECT_EQ(cuda.cuMemHostAlloc(&address, size, 0), CUDA_SUCCESS);
    return static_cast<char*>(address);
  }
  CUstream new_stream() const {
    CUstream made = nullptr;
    EXPECT_EQ(cuda.cuStreamCreate(&made, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    return made;
  }
  CUevent new_event() const {
    CUevent made = nullptr;
    EXPECT_EQ(cuda.cuEventCreate(&made, CU_EVENT_DEFAULT), CUDA_SUCCESS);
    return made;
  }
  CUresult synchronize() const { return cuda.cuStreamSynchronize(stream); }
  // Runs a kernel of the library and returns its result.
  template <class... Parameters>
  CUresult run(const char* name, Parameters... parameters) const {
    CUfunction function = nullptr;
    EXPECT_EQ(cuda.cuModuleGetFunction(&function, *load_kernels(cuda), name), CUDA_SUCCESS) << name;
    std::array<void*, sizeof...(Parameters)> values = {&parameters...};
    const CUresult launched =
        cuda.cuLaunchKernel(function, 2, 1, 1, 128, 1, 1, 0, stream, values.data(), nullptr);
    return launched == CUDA_SUCCESS ? synchronize() : launched;
  }

  const Driver& cuda = **driver();
  std::shared_ptr<const Context> context = *Context::of(cuda, 0);
  const CurrentContext current{*context};
  const CUstream stream = new_stream();
};

// A host function that blocks its stream until the gate is opened.
struct Gate {
  std::atomic<bool> open{false};
  std::atomic<int> passed{0};

  static void wait(void* gate) {
    auto& self = *static_cast<Gate*>(gate);
    self.open.wait(false);
    ++self.passed;
  }
  void let_go() {
    open = true;
    open.notify_all();
  }
};

TEST(FakeDriver, EachVersionHasTheSymbolsOfItsTime) {
  for (const auto& [name, version] :
       {std::pair{"", 13000}, {"12.8", 12080}, {"12.2", 12020}, {"11.0", 11000}}) {
    const FakeCudaLibrary library("", name);
    const Driver cuda = *load_driver(library.path());
    EXPECT_EQ(cuda.version, version);
#define HEADRACE_FAKE_EXPECT(need, since, name, parameters) \
  EXPECT_EQ(cuda.name != nullptr, since <= version) << #name;
    HEADRACE_CUDA_SYMBOLS(HEADRACE_FAKE_EXPECT)
#undef HEADRACE_FAKE_EXPECT
  }
}

TEST(FakeDriver, WrongSettingsAreRefused) {
  for (const char* text :
       {"devices", "devices=17", "colour=red", "memory=1X", "memory=99999999999999T", "latency=5",
        "latency=9223372036854775807ms", "fail=2", "devices=1,,memory=1M", "numa_node=1"}) {
    const FakeCudaLibrary library(text);
    EXPECT_EQ(driver().error().code, ErrorCode::invalid) << text;
  }
}

TEST(FakeMemory, OfADeviceIsOutOfTheHostsReach) {
  const Fake fake;
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  // The kernel checks the address, so that nothing faults.
  EXPECT_EQ(write(ends[1], reinterpret_cast<const void*>(fake.device_memory(64)), 1), -1);
  EXPECT_EQ(errno, EFAULT);
  EXPECT_EQ(write(ends[1], fake.pinned(64), 1), 1);
  for (const int end : ends) close(end);
}

TEST(FakeMemory, IsCountedFreedAndRegisteredOnce) {
  const Fake fake("memory=1M");
  const Driver& cuda = fake.cuda;
  const CUdeviceptr device = fake.device_memory(1000);
  CUdeviceptr more = 0;
  EXPECT_EQ(cuda.cuMemAlloc_v2(&more, 1 << 20), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuda.cuMemFree_v2(device + 512), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda.cuMemFree_v2(device), CUDA_SUCCESS);
  EXPECT_EQ(cuda.cuMemFree_v2(device), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda.cuMemAlloc_v2(&more, 1 << 20), CUDA_SUCCESS);
  std::vector<char> bytes(8192);
  const auto add = [&](std::size_t from, std::size_t size) {
    return cuda.cuMemHostRegister_v2(bytes.data() + from, size, CU_MEMHOSTREGISTER_PORTABLE);
  };
  EXPECT_EQ(add(1000, 2000), CUDA_SUCCESS);
  for (const std::size_t from : {0UL, 1000UL, 2999UL}) {
    EXPECT_EQ(add(from, 1001), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED) << from;
  }
  EXPECT_EQ(cuda.cuMemHostUnregister(bytes.data()), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  EXPECT_EQ(cuda.cuMemHostUnregister(bytes.data() + 1000), CUDA_SUCCESS);
  EXPECT_EQ(add(1000, 2000), CUDA_SUCCESS);
}

TEST(FakeCopies, ArriveAtTheirEnd_OfPageableMemoryWithinTheCall) {
  const Fake fake("latency=50ms");
  const Driver& cuda = fake.cuda;
  const CUdeviceptr device = fake.device_memory(64);
  std::array<char, 64> bytes{};
  bytes.fill(5);
  ASSERT_EQ(cuda.cuMemcpyHtoDAsync_v2(device, bytes.data(), 64, fake.stream), CUDA_SUCCESS);
  EXPECT_EQ(cuda.cuStreamQuery(fake.stream), CUDA_SUCCESS);
  char* const to = fake.pinned(64);
  ASSERT_EQ(cuda.cuMemcpyDtoHAsync_v2(to, device, 64, fake.stream), CUDA_SUCCESS);
  EXPECT_EQ(cuda.cuStreamQuery(fake.stream), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(cuda.cuMemFree_v2(device), CUDA_SUCCESS) << "waits for the copies of it";
  EXPECT_EQ(cuda.cuStreamQuery(fake.stream), CUDA_SUCCESS);
  EXPECT_EQ(to[63], 5);
}

TEST(FakeCopies, ThatLeaveTheirMemoryAreRefused) {
  const Fake fake;
  const Driver& cuda = fake.cuda;
  const CUdeviceptr device = fake.device_memory(64);
  char* const host = fake.pinned(64);
  EXPECT_EQ(cuda.cuMemcpyHtoDAsync_v2(device + 32, host, 64, fake.stream),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda.cuMemcpyDtoHAsync_v2(host + 1, device, 64, fake.stream), CUDA_ERROR_INVALID_VALUE);
  std::array<CUdeviceptr, 2> to = {device, device + 32};
  std::array<CUdeviceptr, 2> from = {address_of(host), address_of(host + 32)};
  std::array<std::size_t, 2> sizes = {32, 33};
  EXPECT_EQ(copy_batch(cuda, to, from, sizes, fake.stream), CUDA_ERROR_INVALID_VALUE);
  sizes[1] = 32;
  EXPECT_EQ(copy_batch(cuda, to, from, sizes, nullptr), CUDA_ERROR_INVALID_VALUE) << "legacy";
  EXPECT_EQ(copy_batch(cuda, to, from, sizes, fake.stream), CUDA_SUCCESS);
}

TEST(FakeStreams, KeepTheirOrder_AndAnEventOrdersTwo) {
  const Fake fake;
  const Driver& cuda = fake.cuda;
  char* const host = fake.pinned(1);
  const CUstream second = fake.new_stream();
  const CUevent event = fake.new_event();
  Gate gate;
  EXPECT_EQ(cuda.cuEventQuery(event), CUDA_SUCCESS) << "never recorded";
  ASSERT_EQ(cuda.cuLaunchHostFunc(fake.stream, Gate::wait, &gate), CUDA_SUCCESS);
  for (unsigned char i = 1; i <= 9; ++i) cuda.cuMemsetD8Async(address_of(host), i, 1, fake.stream);
  ASSERT_EQ(cuda.cuEventRecord(event, fake.stream), CUDA_SUCCESS);
  ASSERT_EQ(cuda.cuStreamWaitEvent(second, event, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuda.cuEventQuery(event), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(cuda.cuStreamQuery(second), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(host[0], 0);
  gate.let_go();
  ASSERT_EQ(cuda.cuStreamSynchronize(second), CUDA_SUCCESS);
  EXPECT_EQ(host[0], 9);
}

TEST(FakeStreams, ThatWereDestroyedAreNoHandles_AndTheirWorkIsDone) {
  const Fake fake;
  const Driver& cuda = fake.cuda;
  const CUstream other = fake.new_stream();
  const CUevent event = fake.new_event();
  Gate gate;
  ASSERT_EQ(cuda.cuLaunchHostFunc(other, Gate::wait, &gate), CUDA_SUCCESS);
  ASSERT_EQ(cuda.cuStreamDestroy_v2(other), CUDA_SUCCESS) << "does not wait";
  EXPECT_EQ(cuda.cuStreamQuery(other), CUDA_ERROR_INVALID_HANDLE);
  ASSERT_EQ(cuda.cuEventDestroy_v2(event), CUDA_SUCCESS);
  EXPECT_EQ(cuda.cuEventQuery(event), CUDA_ERROR_INVALID_HANDLE);
  gate.let_go();
  EXPECT_EQ(cuda.cuMemFreeHost(fake.pinned(1)), CUDA_SUCCESS) << "waits for all streams";
  EXPECT_EQ(gate.passed, 1);
}

TEST(FakeStreams, AHostFunctionMayCallNothing) {
  const Fake fake;
  struct Call {
    const Fake& fake;
    CUresult result = CUDA_SUCCESS;
  } call{fake};
  const auto query = [](void* data) {
    auto& mine = *static_cast<Call*>(data);
    mine.result = mine.fake.cuda.cuStreamQuery(nullptr);
  };
  ASSERT_EQ(fake.cuda.cuLaunchHostFunc(fake.stream, query, &call), CUDA_SUCCESS);
  ASSERT_EQ(fake.synchronize(), CUDA_SUCCESS);
  EXPECT_EQ(call.result, CUDA_ERROR_NOT_PERMITTED);
}

TEST(FakeStreams, AreNotAskedWhileAnotherThreadCaptures) {
  const FakeCudaLibrary library("capturing=1");
  const Driver& cuda = **driver();
  const auto context = *Context::of(cuda, 0);
  CUdeviceptr address = 0;
  ASSERT_EQ(cuda.cuCtxPushCurrent_v2(context->handle()), CUDA_SUCCESS);
  EXPECT_EQ(cuda.cuMemAlloc_v2(&address, 512), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(cuda.cuStreamQuery(nullptr), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  {
    const CurrentContext relaxed(*context);
    EXPECT_EQ(cuda.cuMemAlloc_v2(&address, 512), CUDA_SUCCESS);
    EXPECT_EQ(cuda.cuStreamQuery(nullptr), CUDA_SUCCESS);
  }
  EXPECT_EQ(cuda.cuMemFree_v2(address), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  ASSERT_EQ(cuda.cuCtxPopCurrent_v2(nullptr), CUDA_SUCCESS);
}

TEST(FakeContexts, ALostOneAnswersEveryCallWithItsErrorUntilItIsMadeAnew) {
  const FakeCudaLibrary library("lost_after=1");
  const Driver& cuda = **driver();
  for (int time = 0; time < 2; ++time) {
    const auto context = *Context::of(cuda, 0);
    const CurrentContext current(*context);
    bool called = false;
    CUstream stream = nullptr;
    ASSERT_EQ(cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ASSERT_EQ(cuda.cuLaunchHostFunc(stream, [](void*) {}, nullptr), CUDA_SUCCESS);
    ASSERT_EQ(cuda.cuStreamSynchronize(stream), CUDA_SUCCESS);
    const auto call = [](void* data) { *static_cast<bool*>(data) = true; };
    ASSERT_EQ(cuda.cuLaunchHostFunc(stream, call, &called), CUDA_SUCCESS);
    EXPECT_EQ(cuda.cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_FALSE(called);
    CUdeviceptr address = 0;
    EXPECT_EQ(cuda.cuMemAlloc_v2(&address, 64), CUDA_ERROR_ILLEGAL_ADDRESS);
  }
}

TEST(FakeContexts, WorkThatStandsStillEndsWithItsContext) {
  const Fake fake("stall_after=1");
  const CUdeviceptr device = fake.device_memory(64);
  ASSERT_EQ(fake.cuda.cuMemsetD8Async(device, 1, 64, fake.stream), CUDA_SUCCESS);
  ASSERT_EQ(fake.synchronize(), CUDA_SUCCESS);
  ASSERT_EQ(fake.cuda.cuMemsetD8Async(device, 1, 64, fake.stream), CUDA_SUCCESS);
  EXPECT_EQ(fake.cuda.cuStreamQuery(fake.stream), CUDA_ERROR_NOT_READY);
}

TEST(FakeKernels, DoAsTheirHeaderSays) {
  using u32 = std::uint32_t;
  using u64 = std::uint64_t;
  const Fake fake;
  std::vector<u32> words(16);
  std::iota(words.begin(), words.end(), 100);
  char* const host = fake.pinned(64);
  const CUdeviceptr data = address_of(host);
  auto* const result = reinterpret_cast<u64*>(fake.pinned(8));
  const CUdeviceptr to = address_of(result);
  ASSERT_EQ(fake.run(kWriteNarrow, data, u64{16}, u32{100}), CUDA_SUCCESS);
  EXPECT_EQ(std::memcmp(host, words.data(), 64), 0);
  ASSERT_EQ(fake.run(kReadNarrow, data, u64{16}, to), CUDA_SUCCESS);
  ASSERT_EQ(fake.run(kReadWide, data, u64{4}, to), CUDA_SUCCESS);
  EXPECT_EQ(*result, 2U * std::accumulate(words.begin(), words.end(), 0U));
  *result = 0;
  ASSERT_EQ(fake.run(kChecksum, data, u64{8}, to), CUDA_SUCCESS);
  const u64 checksum = std::exchange(*result, 0);
  std::swap(host[0], host[8]);
  ASSERT_EQ(fake.run(kChecksum, data, u64{8}, to), CUDA_SUCCESS);
  EXPECT_NE(*result, checksum) << "it sees the order of words";
  ASSERT_EQ(fake.run(kWriteWide, data, u64{4}, u32{7}), CUDA_SUCCESS);
  EXPECT_EQ(reinterpret_cast<u32*>(host)[15], 7U);
  const std::array<u64, 4> next = {2, 0, 3, 1};
  std::memcpy(host, next.data(), sizeof next);
  ASSERT_EQ(fake.run(kChase, data, u64{0}, u64{3}, to), CUDA_SUCCESS);
  EXPECT_EQ(*result, 1U);
  CopyList list{.count = 1};
  list.copies[0] = {.to = data + 32, .from = data, .bytes = 32};
  ASSERT_EQ(fake.run(kGather, list), CUDA_SUCCESS);
  EXPECT_EQ(std::memcmp(host, host + 32, 32), 0);
  list.copies[0].bytes = 8;
  EXPECT_EQ(fake.run(kGather, list), CUDA_ERROR_MISALIGNED_ADDRESS);
}

TEST(FakeKernels, MemoryThatTheDeviceDoesNotReachLosesTheContext) {
  std::array<std::uint32_t, 4> pageable{};
  for (const bool reached : {true, false}) {
    const Fake fake(reached ? "paradigm=hmm" : "paradigm=managed");
    EXPECT_EQ(
        fake.run(kWriteNarrow, address_of(pageable.data()), std::uint64_t{4}, reached ? 1 : 9),
        reached ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(pageable[3], 4U);
    EXPECT_EQ(fake.cuda.cuStreamQuery(nullptr),
              reached ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS);
  }
}

TEST(FakeKernels, PtxThatIsTooNewIsRefusedWithALog) {
  const Fake fake("compute=70");
  const auto load = [&](const char* text) {
    CUmodule module = nullptr;
    return fake.cuda.cuModuleLoadDataEx(&module, text, 0, nullptr, nullptr);
  };
  EXPECT_EQ(load(".version 6.0\n.target sm_70\n"), CUDA_SUCCESS);
  EXPECT_EQ(load(".version 9.5\n.target sm_70\n"), CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
  EXPECT_EQ(load(".version 6.0\n.target sm_75\n"), CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(load("no ptx"), CUDA_ERROR_INVALID_PTX);
}

}  // namespace
}  // namespace headrace::cuda::fake
