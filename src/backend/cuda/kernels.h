// SPDX-License-Identifier: Apache-2.0
// The kernels that the library carries as PTX: their names, and what each does with its parameters.
// They are loaded with cuModuleLoadDataEx; kernels.cu is their source.
//
// Each is right for any grid and block of one dimension. Numbers are u32 and u64, addresses those
// of the device; results are added to what is there, so their place is set to 0 before.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace headrace::cuda {

// Text, which ends with a 0; of PTX 6.0 for sm_70, so that any driver from 9.0 on takes it, and
// GPUs from Volta on.
extern const char* const kKernelsPtx;

// (data, u64 count, u32* sum): adds the sum of `count` words of 4 bytes. A thread has one load in
// flight, as the published probe um_reprex has (its grid: 2 blocks of 128 threads for each
// multiprocessor), and one atomic addition.
inline constexpr const char* kReadNarrow = "headrace_read_narrow";
// (data, u64 count, u32 value): word i becomes `value` + i; one word of 4 bytes at a time.
inline constexpr const char* kWriteNarrow = "headrace_write_narrow";

// (data, u64 count, u32* sum): as kReadNarrow, but `count` of 16 bytes, 16-byte aligned, and four
// loads in flight: what it takes to fill the memory system. The sum is that of the words of 4
// bytes.
inline constexpr const char* kReadWide = "headrace_read_wide";
// (data, u64 count, u32 value): `count` of 16 bytes, 16-byte aligned; each word of 4 becomes
// `value`.
inline constexpr const char* kWriteWide = "headrace_write_wide";

// (to, from, u64 bytes): copies; by 16 bytes where addresses and size are multiples of it, by 4 or
// single ones where not.
inline constexpr const char* kCopy = "headrace_copy";

// (CopyList): copies all that are in the list, which is a parameter by value and needs no memory
// that lives until the kernel has run. Addresses and sizes are multiples of 16. A block of threads
// does whole copies, 64 bytes in flight for each thread.
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

// (const ListedCopy*, u64 count): as kGather, of a list in memory that the GPU reaches, which lives
// until the kernel has run. A warp does whole copies, 128 bytes in flight for each thread.
inline constexpr const char* kGatherList = "headrace_gather_list";

// (data, u64 count, u64* sum): adds a number that tells `count` words of 8 bytes, and their order,
// from others: the sum of mix(word + mix(i)), where mix is the finaliser of SplitMix64.
inline constexpr const char* kChecksum = "headrace_checksum";

// (const u64* next, u64 start, u64 steps, u64* end): follows `steps` numbers, each the place of the
// next, from place `start`; the last becomes *end. One thread works.
inline constexpr const char* kChase = "headrace_chase";

}  // namespace headrace::cuda
