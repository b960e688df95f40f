// SPDX-License-Identifier: Apache-2.0
// Calls that drivers have in two forms, or only from a version on. Each function uses the newest
// form of the loaded driver. Thread-safe.
//
// Requires of all: the context that owns the memory is current.
#pragma once

#include <cstddef>
#include <span>

#include "backend/cuda/driver.h"

namespace headrace::cuda {

inline constexpr CUmemLocation kHost{CU_MEM_LOCATION_TYPE_HOST, 0};
constexpr CUmemLocation gpu_location(CUdevice device) {
  return {CU_MEM_LOCATION_TYPE_DEVICE, device};
}
constexpr CUmemLocation host_node_location(int node) {
  return {CU_MEM_LOCATION_TYPE_HOST_NUMA, node};
}

// Advice on managed memory. Drivers before CUDA 12.2 know the host as a whole, without its nodes.
CUresult advise(const Driver& driver, CUdeviceptr address, std::size_t bytes, CUmem_advise advice,
                CUmemLocation about);

// Prefetches managed memory to a place, in order with the stream's other work. Nodes: as advise().
CUresult prefetch(const Driver& driver, CUdeviceptr address, std::size_t bytes, CUmemLocation to,
                  CUstream stream);

// Whether the driver has cuMemcpyBatchAsync (CUDA 12.8).
bool takes_batches(const Driver& driver);

// Copies sizes[i] bytes from from[i] to to[i], in any order, by one call. After a failure it is
// unknown which copies are in the stream. Requires: takes_batches(); spans of equal length, at
// least 1; a stream other than the default one.
CUresult copy_batch(const Driver& driver, std::span<CUdeviceptr> to, std::span<CUdeviceptr> from,
                    std::span<std::size_t> sizes, CUstream stream);

}  // namespace headrace::cuda
