// SPDX-License-Identifier: Apache-2.0
// Copies, alone and in batches: what is asked is checked at once, as the driver does, and done in
// the stream. Memory that is not registered is pageable: the call returns when its copy is done.
//
// Thread-safe.
#pragma once

#include <cstddef>

#include "backend/cuda/driver_api.h"

namespace headrace::cuda::fake {

// What cuMemcpyBatchAsync is given; every pointer has as many elements as the count beside it.
struct Batch {
  const CUdeviceptr* to;
  const CUdeviceptr* from;
  const std::size_t* sizes;
  std::size_t count;
  const CUmemcpyAttributes* attributes;
  const std::size_t* first_of_attribute;
  std::size_t attributes_count;
};

// `failed`, unless null, is told which copy was refused; SIZE_MAX: none in particular.
CUresult copy_batch(const Batch& batch, std::size_t* failed, CUstream stream);

}  // namespace headrace::cuda::fake
