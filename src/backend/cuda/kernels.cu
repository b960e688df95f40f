// SPDX-License-Identifier: Apache-2.0
// The kernels of the CUDA backend. tools/make_ptx.sh makes kernels.ptx of this, which the library
// carries: without headers, so that clang compiles it without a CUDA toolkit. kernels.h says what each
// does. Each is a loop over the grid: any grid and block of one dimension is right.
using u32 = unsigned int;
using u64 = unsigned long long;
using v4 = u32 __attribute__((ext_vector_type(4)));

#define KERNEL extern "C" __attribute__((global)) void

namespace {

__attribute__((device)) inline u64 first() {
  return static_cast<u64>(__nvvm_read_ptx_sreg_ctaid_x()) * __nvvm_read_ptx_sreg_ntid_x() +
         __nvvm_read_ptx_sreg_tid_x();
}

__attribute__((device)) inline u64 stride() {
  return static_cast<u64>(__nvvm_read_ptx_sreg_nctaid_x()) * __nvvm_read_ptx_sreg_ntid_x();
}

__attribute__((device)) inline void add(u32* to, u32 value) {
  __atomic_fetch_add(to, value, __ATOMIC_RELAXED);
}

__attribute__((device)) inline void add(u64* to, u64 value) {
  __atomic_fetch_add(to, value, __ATOMIC_RELAXED);
}

// The finaliser of SplitMix64.
__attribute__((device)) inline u64 mix(u64 z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

// One thread's part of a copy, by elements of one size.
template <class Element>
__attribute__((device)) inline void copy_elements(char* to, const char* from, u64 bytes) {
  const u64 count = bytes / sizeof(Element);
#pragma unroll 1
  for (u64 i = first(); i < count; i += stride()) {
    reinterpret_cast<Element*>(to)[i] = reinterpret_cast<const Element*>(from)[i];
  }
}

// As kernels.h has it.
struct ListedCopy {
  v4* to;
  const v4* from;
  u64 bytes;
};
struct CopyList {
  u64 count;
  ListedCopy copies[128];
};

}  // namespace

KERNEL headrace_read_narrow(const u32* data, u64 count, u32* sum) {
  u32 own = 0;
#pragma unroll 1
  for (u64 i = first(); i < count; i += stride()) own += data[i];
  add(sum, own);
}

KERNEL headrace_write_narrow(u32* data, u64 count, u32 value) {
#pragma unroll 1
  for (u64 i = first(); i < count; i += stride()) data[i] = value + static_cast<u32>(i);
}

KERNEL headrace_read_wide(const v4* data, u64 count, u32* sum) {
  const u64 step = stride();
  v4 a = 0, b = 0, c = 0, d = 0;
  u64 i = first();
#pragma unroll 1
  for (; i + 3 * step < count; i += 4 * step) {
    a += data[i];
    b += data[i + step];
    c += data[i + 2 * step];
    d += data[i + 3 * step];
  }
#pragma unroll 1
  for (; i < count; i += step) a += data[i];
  const v4 own = (a + b) + (c + d);
  add(sum, (own.x + own.y) + (own.z + own.w));
}

KERNEL headrace_write_wide(v4* data, u64 count, u32 value) {
  const v4 filled = value;
#pragma unroll 1
  for (u64 i = first(); i < count; i += stride()) data[i] = filled;
}

KERNEL headrace_copy(char* to, const char* from, u64 bytes) {
  const u64 odd = reinterpret_cast<u64>(to) | reinterpret_cast<u64>(from) | bytes;
  if (odd % 16 == 0) {
    copy_elements<v4>(to, from, bytes);
  } else if (odd % 4 == 0) {
    copy_elements<u32>(to, from, bytes);
  } else {
    copy_elements<char>(to, from, bytes);
  }
}

// A block copies whole copies, four loads in flight for each of its threads.
KERNEL headrace_gather(const CopyList list) {
  const u64 step = __nvvm_read_ptx_sreg_ntid_x();
#pragma unroll 1
  for (u64 c = __nvvm_read_ptx_sreg_ctaid_x(); c < list.count;
       c += __nvvm_read_ptx_sreg_nctaid_x()) {
    v4* const to = list.copies[c].to;
    const v4* const from = list.copies[c].from;
    const u64 count = list.copies[c].bytes / sizeof(v4);
    u64 i = __nvvm_read_ptx_sreg_tid_x();
#pragma unroll 1
    for (; i + 3 * step < count; i += 4 * step) {
      const v4 w = from[i];
      const v4 x = from[i + step];
      const v4 y = from[i + 2 * step];
      const v4 z = from[i + 3 * step];
      to[i] = w;
      to[i + step] = x;
      to[i + 2 * step] = y;
      to[i + 3 * step] = z;
    }
#pragma unroll 1
    for (; i < count; i += step) to[i] = from[i];
  }
}

// A warp copies whole copies, eight loads in flight for each of its threads.
KERNEL headrace_gather_list(const ListedCopy* list, u64 count) {
  const u64 lane = __nvvm_read_ptx_sreg_tid_x() % 32;
#pragma unroll 1
  for (u64 c = first() / 32; c < count; c += stride() / 32) {
    v4* const to = list[c].to;
    const v4* const from = list[c].from;
    const u64 words = list[c].bytes / sizeof(v4);
    u64 i = lane;
#pragma unroll 1
    for (; i + 7 * 32 < words; i += 8 * 32) {
      v4 part[8];
#pragma unroll
      for (int k = 0; k < 8; ++k) part[k] = from[i + k * 32];
#pragma unroll
      for (int k = 0; k < 8; ++k) to[i + k * 32] = part[k];
    }
#pragma unroll 1
    for (; i < words; i += 32) to[i] = from[i];
  }
}

KERNEL headrace_checksum(const u64* data, u64 count, u64* sum) {
  u64 own = 0;
  for (u64 i = first(); i < count; i += stride()) own += mix(data[i] + mix(i));
  add(sum, own);
}

KERNEL headrace_chase(const u64* next, u64 start, u64 steps, u64* end) {
  if (first() != 0) return;
  u64 at = start;
#pragma unroll 1
  for (u64 i = 0; i < steps; ++i) at = next[at];
  *end = at;
}
