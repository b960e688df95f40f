// SPDX-License-Identifier: Apache-2.0
// The part of NVIDIA's driver interface (libcuda.so.1) that Headrace uses: handles, numbers,
// structs, and one table of symbols. Headrace declares it itself, so that the build needs nothing
// from NVIDIA. The header loads nothing and calls nothing.
//
// Names, numbers and layouts are NVIDIA's; tests/abi/cuda_abi.cpp compares each with cuda.h.
// Symbols are looked up by these exact names. A name without its suffix may be an older function
// with other parameters, whatever the macros of cuda.h map it to: `cuMemAdvise` takes a CUdevice,
// `cuMemAdvise_v2` a CUmemLocation.
#pragma once

#include <cstddef>

namespace headrace::cuda {

using CUdevice = int;                    // ordinal, or CU_DEVICE_CPU where a call allows it
using CUdeviceptr = unsigned long long;  // an address, of device or host

using CUcontext = struct CUctx_st*;
using CUstream = struct CUstream_st*;  // null: the legacy default stream
using CUevent = struct CUevent_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUhostFn = void (*)(void* user_data);  // may call nothing of this interface

// Every list below is X(name, number).
#define HEADRACE_CUDA_RESULTS(X)                    \
  X(CUDA_SUCCESS, 0)                                \
  X(CUDA_ERROR_INVALID_VALUE, 1)                    \
  X(CUDA_ERROR_OUT_OF_MEMORY, 2)                    \
  X(CUDA_ERROR_NOT_INITIALIZED, 3)                  \
  X(CUDA_ERROR_DEINITIALIZED, 4)                    \
  X(CUDA_ERROR_STUB_LIBRARY, 34)                    \
  X(CUDA_ERROR_DEVICE_UNAVAILABLE, 46)              \
  X(CUDA_ERROR_NO_DEVICE, 100)                      \
  X(CUDA_ERROR_INVALID_DEVICE, 101)                 \
  X(CUDA_ERROR_INVALID_CONTEXT, 201)                \
  X(CUDA_ERROR_NO_BINARY_FOR_GPU, 209)              \
  X(CUDA_ERROR_ECC_UNCORRECTABLE, 214)              \
  X(CUDA_ERROR_INVALID_PTX, 218)                    \
  X(CUDA_ERROR_NVLINK_UNCORRECTABLE, 220)           \
  X(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, 222)        \
  X(CUDA_ERROR_CONTAINED, 226)                      \
  X(CUDA_ERROR_INVALID_HANDLE, 400)                 \
  X(CUDA_ERROR_NOT_FOUND, 500)                      \
  X(CUDA_ERROR_NOT_READY, 600)                      \
  X(CUDA_ERROR_ILLEGAL_ADDRESS, 700)                \
  X(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, 701)        \
  X(CUDA_ERROR_LAUNCH_TIMEOUT, 702)                 \
  X(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, 704)    \
  X(CUDA_ERROR_CONTEXT_IS_DESTROYED, 709)           \
  X(CUDA_ERROR_ASSERT, 710)                         \
  X(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, 712) \
  X(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, 713)     \
  X(CUDA_ERROR_HARDWARE_STACK_ERROR, 714)           \
  X(CUDA_ERROR_ILLEGAL_INSTRUCTION, 715)            \
  X(CUDA_ERROR_MISALIGNED_ADDRESS, 716)             \
  X(CUDA_ERROR_INVALID_ADDRESS_SPACE, 717)          \
  X(CUDA_ERROR_INVALID_PC, 718)                     \
  X(CUDA_ERROR_LAUNCH_FAILED, 719)                  \
  X(CUDA_ERROR_TENSOR_MEMORY_LEAK, 721)             \
  X(CUDA_ERROR_NOT_PERMITTED, 800)                  \
  X(CUDA_ERROR_NOT_SUPPORTED, 801)                  \
  X(CUDA_ERROR_MPS_CLIENT_TERMINATED, 810)          \
  X(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 900)     \
  X(CUDA_ERROR_EXTERNAL_DEVICE, 911)                \
  X(CUDA_ERROR_UNKNOWN, 999)

#define HEADRACE_CUDA_DEVICE_ATTRIBUTES(X)                                 \
  X(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16)                          \
  X(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 38)                                 \
  X(CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 40)                            \
  X(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 83)                                \
  X(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 88)                        \
  X(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 89)                     \
  X(CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 91)       \
  X(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES, 100) \
  X(CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST, 101)          \
  X(CU_DEVICE_ATTRIBUTE_NUMA_CONFIG, 130)                                  \
  X(CU_DEVICE_ATTRIBUTE_NUMA_ID, 131)                                      \
  X(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 134)

#define HEADRACE_CUDA_MEM_ADVISE(X)          \
  X(CU_MEM_ADVISE_SET_READ_MOSTLY, 1)        \
  X(CU_MEM_ADVISE_SET_PREFERRED_LOCATION, 3) \
  X(CU_MEM_ADVISE_SET_ACCESSED_BY, 5)

#define HEADRACE_CUDA_MEM_RANGE_ATTRIBUTES(X)     \
  X(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, 1)        \
  X(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, 2) \
  X(CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, 3)        \
  X(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, 4)

#define HEADRACE_CUDA_MEM_LOCATION_TYPES(X) \
  X(CU_MEM_LOCATION_TYPE_DEVICE, 1)         \
  X(CU_MEM_LOCATION_TYPE_HOST, 2)           \
  X(CU_MEM_LOCATION_TYPE_HOST_NUMA, 3)

#define HEADRACE_CUDA_MEMCPY_SRC_ACCESS_ORDERS(X) X(CU_MEMCPY_SRC_ACCESS_ORDER_STREAM, 1)

#define HEADRACE_CUDA_STREAM_CAPTURE_MODES(X) \
  X(CU_STREAM_CAPTURE_MODE_GLOBAL, 0)         \
  X(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, 1)   \
  X(CU_STREAM_CAPTURE_MODE_RELAXED, 2)

#define HEADRACE_CUDA_STREAM_CAPTURE_STATUSES(X) \
  X(CU_STREAM_CAPTURE_STATUS_NONE, 0)            \
  X(CU_STREAM_CAPTURE_STATUS_ACTIVE, 1)

#define HEADRACE_CUDA_POINTER_ATTRIBUTES(X)    \
  X(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 2)       \
  X(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, 3)    \
  X(CU_POINTER_ATTRIBUTE_IS_MANAGED, 8)        \
  X(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, 9)    \
  X(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, 11) \
  X(CU_POINTER_ATTRIBUTE_RANGE_SIZE, 12)

#define HEADRACE_CUDA_JIT_OPTIONS(X) \
  X(CU_JIT_ERROR_LOG_BUFFER, 5)      \
  X(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, 6)

#define HEADRACE_CUDA_ENUMERATOR(name, number) name = number,
enum CUresult : unsigned { HEADRACE_CUDA_RESULTS(HEADRACE_CUDA_ENUMERATOR) };
enum CUdevice_attribute : unsigned { HEADRACE_CUDA_DEVICE_ATTRIBUTES(HEADRACE_CUDA_ENUMERATOR) };
enum CUmem_advise : unsigned { HEADRACE_CUDA_MEM_ADVISE(HEADRACE_CUDA_ENUMERATOR) };
enum CUmem_range_attribute : unsigned {
  HEADRACE_CUDA_MEM_RANGE_ATTRIBUTES(HEADRACE_CUDA_ENUMERATOR)
};
enum CUmemLocationType : unsigned { HEADRACE_CUDA_MEM_LOCATION_TYPES(HEADRACE_CUDA_ENUMERATOR) };
enum CUmemcpySrcAccessOrder : unsigned {
  HEADRACE_CUDA_MEMCPY_SRC_ACCESS_ORDERS(HEADRACE_CUDA_ENUMERATOR)
};
enum CUpointer_attribute : unsigned { HEADRACE_CUDA_POINTER_ATTRIBUTES(HEADRACE_CUDA_ENUMERATOR) };
enum CUstreamCaptureMode : unsigned {
  HEADRACE_CUDA_STREAM_CAPTURE_MODES(HEADRACE_CUDA_ENUMERATOR)
};
enum CUstreamCaptureStatus : unsigned {
  HEADRACE_CUDA_STREAM_CAPTURE_STATUSES(HEADRACE_CUDA_ENUMERATOR)
};
enum CUjit_option : unsigned { HEADRACE_CUDA_JIT_OPTIONS(HEADRACE_CUDA_ENUMERATOR) };

// Flags and other numbers that calls take as plain integers.
#define HEADRACE_CUDA_FLAGS(X)      \
  X(CU_STREAM_NON_BLOCKING, 1)      \
  X(CU_EVENT_DEFAULT, 0)            \
  X(CU_EVENT_DISABLE_TIMING, 2)     \
  X(CU_MEMHOSTALLOC_PORTABLE, 1)    \
  X(CU_MEMHOSTALLOC_DEVICEMAP, 2)   \
  X(CU_MEMHOSTREGISTER_PORTABLE, 1) \
  X(CU_MEM_ATTACH_GLOBAL, 1)        \
  X(CU_MEMORYTYPE_HOST, 1)          \
  X(CU_MEMORYTYPE_DEVICE, 2)        \
  X(CU_DEVICE_NUMA_CONFIG_NUMA_NODE, 1)
enum : unsigned { HEADRACE_CUDA_FLAGS(HEADRACE_CUDA_ENUMERATOR) };
#undef HEADRACE_CUDA_ENUMERATOR

// Values instead of a device: the host, and no device.
inline constexpr CUdevice CU_DEVICE_CPU = -1;
inline constexpr CUdevice CU_DEVICE_INVALID = -2;

struct CUuuid {
  char bytes[16];
};

struct CUmemLocation {
  CUmemLocationType type;
  int id;  // device ordinal or NUMA node
};

struct CUmemcpyAttributes {
  CUmemcpySrcAccessOrder srcAccessOrder;
  CUmemLocation srcLocHint;
  CUmemLocation dstLocHint;
  unsigned int flags;
};

// Every function: X(need, since, exact name, parameters). All return a CUresult. `need` is
// `required` (a driver without it cannot be used) or `optional`. `since` is the driver version
// (1000
// * major + 10 * minor) that has this name with these parameters.
#define HEADRACE_CUDA_SYMBOLS(X)                                                                  \
  X(required, 2000, cuInit, (unsigned int flags))                                                 \
  X(required, 2020, cuDriverGetVersion, (int* version))                                           \
  X(required, 6000, cuGetErrorName, (CUresult error, const char** name))                          \
  X(required, 6000, cuGetErrorString, (CUresult error, const char** text))                        \
  X(required, 2000, cuDeviceGetCount, (int* count))                                               \
  X(required, 2000, cuDeviceGet, (CUdevice * device, int ordinal))                                \
  X(required, 2000, cuDeviceGetName, (char* name, int size, CUdevice device))                     \
  X(required, 3020, cuDeviceTotalMem_v2, (std::size_t* bytes, CUdevice device))                   \
  X(required, 2000, cuDeviceGetAttribute, (int* value, CUdevice_attribute what, CUdevice device)) \
  X(required, 4010, cuDeviceGetPCIBusId, (char* id, int size, CUdevice device))                   \
  X(optional, 11040, cuDeviceGetUuid_v2, (CUuuid * uuid, CUdevice device))                        \
  X(required, 4000, cuDeviceCanAccessPeer, (int* can, CUdevice device, CUdevice peer))            \
  X(required, 7000, cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))             \
  X(optional, 7000, cuDevicePrimaryCtxGetState,                                                   \
    (CUdevice device, unsigned int* flags, int* active))                                          \
  X(required, 11000, cuDevicePrimaryCtxRelease_v2, (CUdevice device))                             \
  X(required, 4000, cuCtxPushCurrent_v2, (CUcontext context))                                     \
  X(required, 4000, cuCtxPopCurrent_v2, (CUcontext * context))                                    \
  X(required, 4000, cuCtxGetCurrent, (CUcontext * context))                                       \
  X(required, 4000, cuCtxEnablePeerAccess, (CUcontext peer, unsigned int flags))                  \
  X(required, 3020, cuMemAlloc_v2, (CUdeviceptr * address, std::size_t size))                     \
  X(required, 3020, cuMemFree_v2, (CUdeviceptr address))                                          \
  X(required, 3020, cuMemGetInfo_v2, (std::size_t* free, std::size_t* total))                     \
  X(required, 2020, cuMemHostAlloc, (void** address, std::size_t size, unsigned int flags))       \
  X(required, 2000, cuMemFreeHost, (void* address))                                               \
  X(required, 6050, cuMemHostRegister_v2, (void* address, std::size_t size, unsigned int flags))  \
  X(required, 4000, cuMemHostUnregister, (void* address))                                         \
  X(required, 3020, cuMemHostGetDevicePointer_v2,                                                 \
    (CUdeviceptr * address, void* host, unsigned int flags))                                      \
  X(required, 6000, cuMemAllocManaged,                                                            \
    (CUdeviceptr * address, std::size_t size, unsigned int flags))                                \
  X(required, 8000, cuMemAdvise,                                                                  \
    (CUdeviceptr address, std::size_t size, CUmem_advise advice, CUdevice device))                \
  X(optional, 12020, cuMemAdvise_v2,                                                              \
    (CUdeviceptr address, std::size_t size, CUmem_advise advice, CUmemLocation location))         \
  X(required, 8000, cuMemPrefetchAsync,                                                           \
    (CUdeviceptr address, std::size_t size, CUdevice device, CUstream stream))                    \
  X(optional, 12020, cuMemPrefetchAsync_v2,                                                       \
    (CUdeviceptr address, std::size_t size, CUmemLocation location, unsigned int flags,           \
     CUstream stream))                                                                            \
  X(optional, 8000, cuMemRangeGetAttribute,                                                       \
    (void* value, std::size_t value_size, CUmem_range_attribute what, CUdeviceptr address,        \
     std::size_t size))                                                                           \
  X(required, 4000, cuMemcpyAsync,                                                                \
    (CUdeviceptr to, CUdeviceptr from, std::size_t size, CUstream stream))                        \
  X(required, 3020, cuMemcpyHtoDAsync_v2,                                                         \
    (CUdeviceptr to, const void* from, std::size_t size, CUstream stream))                        \
  X(required, 3020, cuMemcpyDtoHAsync_v2,                                                         \
    (void* to, CUdeviceptr from, std::size_t size, CUstream stream))                              \
  X(required, 3020, cuMemcpyDtoDAsync_v2,                                                         \
    (CUdeviceptr to, CUdeviceptr from, std::size_t size, CUstream stream))                        \
  X(required, 4000, cuMemcpyPeerAsync,                                                            \
    (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,              \
     std::size_t size, CUstream stream))                                                          \
  X(optional, 12080, cuMemcpyBatchAsync,                                                          \
    (CUdeviceptr * to, CUdeviceptr * from, std::size_t* sizes, std::size_t count,                 \
     CUmemcpyAttributes* attributes, std::size_t* first_of_attribute,                             \
     std::size_t attributes_count, std::size_t* failed, CUstream stream))                         \
  X(optional, 13000, cuMemcpyBatchAsync_v2,                                                       \
    (CUdeviceptr * to, CUdeviceptr * from, std::size_t* sizes, std::size_t count,                 \
     CUmemcpyAttributes* attributes, std::size_t* first_of_attribute,                             \
     std::size_t attributes_count, CUstream stream))                                              \
  X(required, 3020, cuMemsetD8Async,                                                              \
    (CUdeviceptr address, unsigned char value, std::size_t size, CUstream stream))                \
  X(required, 2000, cuStreamCreate, (CUstream * stream, unsigned int flags))                      \
  X(required, 4000, cuStreamDestroy_v2, (CUstream stream))                                        \
  X(required, 2000, cuStreamSynchronize, (CUstream stream))                                       \
  X(required, 2000, cuStreamQuery, (CUstream stream))                                             \
  X(required, 3020, cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned int flags))      \
  X(required, 9020, cuStreamGetCtx, (CUstream stream, CUcontext * context))                       \
  X(optional, 10000, cuStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus * status))      \
  X(optional, 10010, cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode * mode))             \
  X(required, 2000, cuEventCreate, (CUevent * event, unsigned int flags))                         \
  X(required, 2000, cuEventRecord, (CUevent event, CUstream stream))                              \
  X(required, 2000, cuEventQuery, (CUevent event))                                                \
  X(required, 2000, cuEventElapsedTime, (float* milliseconds, CUevent start, CUevent end))        \
  X(required, 4000, cuEventDestroy_v2, (CUevent event))                                           \
  X(required, 10000, cuLaunchHostFunc, (CUstream stream, CUhostFn function, void* user_data))     \
  X(required, 2010, cuModuleLoadDataEx,                                                           \
    (CUmodule * module, const void* image, unsigned int count, CUjit_option* options,             \
     void** values))                                                                              \
  X(required, 2000, cuModuleUnload, (CUmodule module))                                            \
  X(required, 2000, cuModuleGetFunction,                                                          \
    (CUfunction * function, CUmodule module, const char* name))                                   \
  X(optional, 6050, cuOccupancyMaxActiveBlocksPerMultiprocessor,                                  \
    (int* blocks, CUfunction function, int threads, std::size_t shared_bytes))                    \
  X(required, 4000, cuLaunchKernel,                                                               \
    (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,          \
     unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, \
     CUstream stream, void** parameters, void** extra))                                           \
  X(required, 4000, cuPointerGetAttribute,                                                        \
    (void* value, CUpointer_attribute what, CUdeviceptr address))

}  // namespace headrace::cuda
