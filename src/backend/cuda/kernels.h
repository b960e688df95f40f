// SPDX-License-Identifier: Apache-2.0
// The kernels that the library carries as PTX: their names, their work and their parameters. They
// are loaded with cuModuleLoadDataEx; kernels.cu is their source.
//
// Each kernel is right for any grid and block of one dimension. Numbers are u32 and u64; addresses
// are device addresses. A result is added to the number at its place, so the caller sets that to 0
// before.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "backend/cuda/driver.h"

namespace headrace::cuda {

// Zero-terminated text: PTX 6.0 for sm_70, for any driver from CUDA 9.0 on and GPUs from Volta on.
extern const char* const kKernelsPtx;

// Makes a module of the kernels, which the caller unloads. Compiles them if the driver has not
// cached them; an error contains the compiler's message. Requires: a current context. Thread-safe.
Result<CUmodule> load_kernels(const Driver& driver);

// (data, u64 count, u32* sum): adds the sum of `count` words of 4 bytes. A thread has one load in
// flight and makes one atomic addition, like the published probe um_reprex (its grid: 2 blocks of
// 128 threads for each multiprocessor).
inline constexpr const char* kReadNarrow = "headrace_read_narrow";
// (data, u64 count, u32 value): sets word i to `value` + i, one word of 4 bytes at a time.
inline constexpr const char* kWriteNarrow = "headrace_write_narrow";

// (data, u64 count, u32* sum): like kReadNarrow, but with `count` elements of 16 bytes, 16-byte
// aligned, and four loads in flight, which fill the memory system. Sums the words of 4 bytes.
inline constexpr const char* kReadWide = "headrace_read_wide";
// (data, u64 count, u32 value): sets each word of 4 bytes to `value` in `count` elements of 16
// bytes, 16-byte aligned.
inline constexpr const char* kWriteWide = "headrace_write_wide";

// (to, from, u64 bytes): copies by 16 bytes if addresses and size are multiples of 16, else by 4
// bytes, else by single bytes.
inline constexpr const char* kCopy = "headrace_copy";

// (CopyList): makes all copies of the list. The list is a parameter by value, so no memory must
// live until the kernel has run. Addresses and sizes are multiples of 16. A block of threads makes
// whole copies, 64 bytes in flight for each thread.
inline constexpr const char* kGather = "headrace_gather";
inline constexpr std::size_t kMostGathered = 128;  // parameters may take 4 KiB
inline constexpr std::size_t kGatherAlignment = 16;
struct ListedCopy {
  std::uint64_t to = 0;
  std::uint64_t from = 0;
  std::uint64_t bytes = 0;
};
struct CopyList {
  std::uint64_t count = 0;
  std::array<ListedCopy, kMostGathered> copies = {};
};
static_assert(sizeof(CopyList) == 3080);

// (const ListedCopy*, u64 count): like kGather, with a list in memory that the GPU reaches and that
// lives until the kernel has run. A warp makes whole copies, 128 bytes in flight for each thread.
inline constexpr const char* kGatherList = "headrace_gather_list";

// (data, u64 count, u64* sum): adds a checksum of `count` words of 8 bytes and their order: the sum
// of mix(word + mix(i)), where mix is the finaliser of SplitMix64.
inline constexpr const char* kChecksum = "headrace_checksum";

// (const u64* next, u64 start, u64 steps, u64* end): follows `steps` numbers from place `start`,
// each the place of the next one, and stores the last in *end. One thread works.
inline constexpr const char* kChase = "headrace_chase";

}  // namespace headrace::cuda
