// SPDX-License-Identifier: Apache-2.0
// Calls that drivers have in two forms, or from a version on: each is made here by the newest form
// that this driver has, so that no caller has to know. Thread-safe.
//
// Requires of all: the context that the memory belongs to is current.
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

// Advice on managed memory. Drivers before CUDA 12.2 know the host, and none of its nodes.
CUresult advise(const Driver& driver, CUdeviceptr address, std::size_t bytes, CUmem_advise advice,
                CUmemLocation about);

// Fetches managed memory to a place, in order with what else is in the stream. Nodes as of
// advise().
CUresult prefetch(const Driver& driver, CUdeviceptr address, std::size_t bytes, CUmemLocation to,
                  CUstream stream);

// Whether it has cuMemcpyBatchAsync (CUDA 12.8).
bool takes_batches(const Driver& driver);

// Copies sizes[i] bytes from from[i] to to[i], in any order, by one call. A failure leaves open
// which of them are in the stream. Requires: takes_batches(), equally many of each, one or more,
// and a stream that is not the default one.
CUresult copy_batch(const Driver& driver, std::span<CUdeviceptr> to, std::span<CUdeviceptr> from,
                    std::span<std::size_t> sizes, CUstream stream);

}  // namespace headrace::cuda
