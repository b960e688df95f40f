// SPDX-License-Identifier: Apache-2.0
#include "support/fake_cuda/kernels.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <utility>

#include "backend/cuda/kernels.h"
#include "support/fake_cuda/driver.h"

namespace headrace::cuda::fake {
namespace {

using u32 = std::uint32_t;
using u64 = std::uint64_t;

// Reads the parameters at the launch, like the driver, by the types that the kernel declares.
template <class... Parameters>
Launch bind_to(CUresult (*body)(DeviceView&, Parameters...), void** parameters) {
  std::tuple<Parameters...> values;
  std::apply(
      [&](Parameters&... each) {
        std::size_t i = 0;
        ((std::memcpy(&each, parameters[i++], sizeof each)), ...);
      },
      values);
  return [body, values](DeviceView& memory) {
    return std::apply([&](const auto&... each) { return body(memory, each...); }, values);
  };
}

template <auto body>
Launch bind(void** parameters) {
  return bind_to(body, parameters);
}

template <class... Parameters>
constexpr unsigned count_of(CUresult (*)(DeviceView&, Parameters...)) {
  return sizeof...(Parameters);
}

template <class Word>
Word load(const std::byte* from) {
  Word word;
  std::memcpy(&word, from, sizeof word);
  return word;
}

template <class Word>
CUresult add(DeviceView& memory, CUdeviceptr to, Word value) {
  const auto place = memory.reach(to, sizeof(Word), sizeof(Word));
  if (!place) return place.error();
  std::atomic_ref(*reinterpret_cast<Word*>(*place)) += value;
  return CUDA_SUCCESS;
}

template <std::size_t element>
CUresult read(DeviceView& memory, CUdeviceptr data, u64 count, CUdeviceptr sum) {
  const auto from = memory.reach(data, count * element, element);
  if (!from) return from.error();
  u32 own = 0;
  for (u64 i = 0; i < count * element; i += sizeof(u32)) own += load<u32>(*from + i);
  return add(memory, sum, own);
}

CUresult write_narrow(DeviceView& memory, CUdeviceptr data, u64 count, u32 value) {
  const auto to = memory.reach(data, count * sizeof value, sizeof value);
  if (!to) return to.error();
  for (u64 i = 0; i < count; ++i) {
    const u32 word = value + static_cast<u32>(i);
    std::memcpy(*to + i * sizeof word, &word, sizeof word);
  }
  return CUDA_SUCCESS;
}

CUresult write_wide(DeviceView& memory, CUdeviceptr data, u64 count, u32 value) {
  const auto to = memory.reach(data, count * 16, 16);
  if (!to) return to.error();
  for (u64 i = 0; i < count * 16; i += sizeof value) std::memcpy(*to + i, &value, sizeof value);
  return CUDA_SUCCESS;
}

CUresult copy_one(DeviceView& memory, CUdeviceptr to, CUdeviceptr from, u64 bytes, u64 alignment) {
  if (bytes % alignment != 0) return CUDA_ERROR_MISALIGNED_ADDRESS;
  const auto source = memory.reach(from, bytes, alignment);
  if (!source) return source.error();
  const auto target = memory.reach(to, bytes, alignment);
  if (!target) return target.error();
  if (bytes > 0 && driver().settings.data != 0) std::memmove(*target, *source, bytes);
  return CUDA_SUCCESS;
}

CUresult copy_bytes(DeviceView& memory, CUdeviceptr to, CUdeviceptr from, u64 bytes) {
  return copy_one(memory, to, from, bytes, 1);
}

// Backwards, since a kernel's blocks run in no order.
CUresult copy_list(DeviceView& memory, CopyList list) {
  for (u64 i = std::min<u64>(list.count, kMostGathered); i-- > 0;) {
    const ListedCopy& each = list.copies[i];
    const CUresult result = copy_one(memory, each.to, each.from, each.bytes, kGatherAlignment);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult copy_list_at(DeviceView& memory, CUdeviceptr list, u64 count) {
  const auto entries = memory.reach(list, count * sizeof(ListedCopy), alignof(ListedCopy));
  if (!entries) return entries.error();
  for (u64 i = count; i-- > 0;) {
    ListedCopy each;
    std::memcpy(&each, *entries + i * sizeof each, sizeof each);
    const CUresult result = copy_one(memory, each.to, each.from, each.bytes, kGatherAlignment);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

u64 mix(u64 z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

CUresult checksum(DeviceView& memory, CUdeviceptr data, u64 count, CUdeviceptr sum) {
  const auto from = memory.reach(data, count * sizeof(u64), sizeof(u64));
  if (!from) return from.error();
  u64 own = 0;
  for (u64 i = 0; i < count; ++i) own += mix(load<u64>(*from + i * sizeof(u64)) + mix(i));
  return add(memory, sum, own);
}

CUresult chase(DeviceView& memory, CUdeviceptr next, u64 start, u64 steps, CUdeviceptr end) {
  u64 at = start;
  for (u64 i = 0; i < steps; ++i) {
    const auto place = memory.reach(next + at * sizeof at, sizeof at, sizeof at);
    if (!place) return place.error();
    at = load<u64>(*place);
  }
  const auto result = memory.reach(end, sizeof at, sizeof at);
  if (!result) return result.error();
  std::memcpy(*result, &at, sizeof at);
  return CUDA_SUCCESS;
}

template <auto body>
constexpr Kernel kernel(const char* name, unsigned registers) {
  return {name, count_of(body), bind<body>, registers};
}

constexpr std::array kKernels = {
    kernel<read<4>>(kReadNarrow, 16),      kernel<write_narrow>(kWriteNarrow, 18),
    kernel<read<16>>(kReadWide, 58),       kernel<write_wide>(kWriteWide, 20),
    kernel<copy_bytes>(kCopy, 22),         kernel<copy_list>(kGather, 48),
    kernel<checksum>(kChecksum, 22),       kernel<chase>(kChase, 12),
    kernel<copy_list_at>(kGatherList, 48),
};

}  // namespace

std::expected<std::byte*, CUresult> DeviceView::reach(CUdeviceptr address, std::size_t size,
                                                      std::size_t alignment) {
  if (address % alignment != 0) return std::unexpected(CUDA_ERROR_MISALIGNED_ADDRESS);
  if (size == 0) return nullptr;
  const auto range = driver().memory.find(address);
  Device& device = context_.device();
  if (range == nullptr) {
    // Unregistered host memory: some devices reach it.
    const Paradigm paradigm = driver().settings.paradigm;
    const bool reached = paradigm == Paradigm::ats || paradigm == Paradigm::hmm;
    const CUdeviceptr page = address / 4096 * 4096;
    if (!reached || msync(reinterpret_cast<void*>(page), address + size - page, MS_ASYNC) != 0) {
      return std::unexpected(CUDA_ERROR_ILLEGAL_ADDRESS);
    }
    ++hops_;
    remote_ += size;
    return reinterpret_cast<std::byte*>(address);
  }
  if (!range->contains(address, size)) return std::unexpected(CUDA_ERROR_ILLEGAL_ADDRESS);
  if (range->kind == Kind::device && range->device != device.ordinal()) {
    if (!context_.peer_enabled(range->device)) return std::unexpected(CUDA_ERROR_ILLEGAL_ADDRESS);
  }
  if (range->device != device.ordinal()) {
    ++hops_;
    remote_ += size;
  }
  return range->at(address);
}

std::chrono::nanoseconds DeviceView::time() const {
  const double bandwidth = driver().settings.kernel_bandwidth;
  const Device& device = context_.device();
  if (bandwidth == 0) return device.link_time(hops_, remote_);
  return device.link_time(hops_, 0) + std::chrono::nanoseconds(static_cast<std::int64_t>(
                                          static_cast<double>(remote_) * 1e9 / bandwidth));
}

const Kernel* find_kernel(std::string_view name) {
  for (const Kernel& each : kKernels) {
    if (each.name == name) return &each;
  }
  return nullptr;
}

}  // namespace headrace::cuda::fake
