// SPDX-License-Identifier: Apache-2.0
// Compares our declarations of NVIDIA's driver interface with its own, cuda.h: each number, layout
// and signature. Compiling is the whole test (tests/abi/check_cuda.sh).
#include "backend/cuda/driver_api.h"

#include <cstddef>
#include <type_traits>

// Declares each function by its exact name, older ones too, without macros that rename them.
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

namespace ours = headrace::cuda;

// The table names types that are here those of cuda.h; the functions have C's names.
#define SAME_SIGNATURE(need, since, name, parameters)                              \
  static_assert(std::is_same_v<decltype(&::name), CUresult(*) parameters>, #name); \
  static_assert(since <= CUDA_VERSION, #name);
HEADRACE_CUDA_SYMBOLS(SAME_SIGNATURE)

#define SAME_NUMBER(name, number) static_assert(number == static_cast<long long>(::name), #name);
HEADRACE_CUDA_RESULTS(SAME_NUMBER)
HEADRACE_CUDA_DEVICE_ATTRIBUTES(SAME_NUMBER)
HEADRACE_CUDA_MEM_ADVISE(SAME_NUMBER)
HEADRACE_CUDA_MEM_RANGE_ATTRIBUTES(SAME_NUMBER)
HEADRACE_CUDA_MEM_LOCATION_TYPES(SAME_NUMBER)
HEADRACE_CUDA_MEMCPY_SRC_ACCESS_ORDERS(SAME_NUMBER)
HEADRACE_CUDA_STREAM_CAPTURE_MODES(SAME_NUMBER)
HEADRACE_CUDA_STREAM_CAPTURE_STATUSES(SAME_NUMBER)
HEADRACE_CUDA_POINTER_ATTRIBUTES(SAME_NUMBER)
HEADRACE_CUDA_JIT_OPTIONS(SAME_NUMBER)

// Not all of these are enumerators in cuda.h, so the number may be a macro there.
#define SAME_FLAG(name, number) static_assert(number == (name), #name);
HEADRACE_CUDA_FLAGS(SAME_FLAG)

#define SAME_SIZE(type)                                       \
  static_assert(sizeof(ours::type) == sizeof(::type), #type); \
  static_assert(alignof(ours::type) == alignof(::type), #type)
SAME_SIZE(CUdevice);
SAME_SIZE(CUdeviceptr);
SAME_SIZE(CUresult);
SAME_SIZE(CUdevice_attribute);
SAME_SIZE(CUmem_advise);
SAME_SIZE(CUmem_range_attribute);
SAME_SIZE(CUmemLocationType);
SAME_SIZE(CUmemcpySrcAccessOrder);
SAME_SIZE(CUstreamCaptureMode);
SAME_SIZE(CUstreamCaptureStatus);
SAME_SIZE(CUpointer_attribute);
SAME_SIZE(CUjit_option);
SAME_SIZE(CUuuid);
SAME_SIZE(CUmemLocation);
SAME_SIZE(CUmemcpyAttributes);

#define SAME_PLACE(type, field) \
  static_assert(offsetof(ours::type, field) == offsetof(::type, field), #field)
SAME_PLACE(CUuuid, bytes);
SAME_PLACE(CUmemLocation, type);
SAME_PLACE(CUmemLocation, id);
SAME_PLACE(CUmemcpyAttributes, srcAccessOrder);
SAME_PLACE(CUmemcpyAttributes, srcLocHint);
SAME_PLACE(CUmemcpyAttributes, dstLocHint);
SAME_PLACE(CUmemcpyAttributes, flags);

static_assert(std::is_same_v<ours::CUhostFn, ::CUhostFn>);
// In cuda.h these two are macros, which would replace the names of ours.
constexpr int kTheirCpu = CU_DEVICE_CPU, kTheirInvalid = CU_DEVICE_INVALID;
#undef CU_DEVICE_CPU
#undef CU_DEVICE_INVALID
static_assert(ours::CU_DEVICE_CPU == kTheirCpu);
static_assert(ours::CU_DEVICE_INVALID == kTheirInvalid);
