// SPDX-License-Identifier: Apache-2.0
// Copies, alone and in batches. The arguments are checked at once, like in the driver, and the copy
// is made in the stream. Unregistered memory is pageable: the call returns when its copy is done.
//
// Thread-safe.
#pragma once

#include <cstddef>

#include "backend/cuda/driver_api.h"

namespace headrace::cuda::fake {

// The arguments of cuMemcpyBatchAsync. Each pointer has as many elements as the count beside it.
struct Batch {
  const CUdeviceptr* to;
  const CUdeviceptr* from;
  const std::size_t* sizes;
  std::size_t count;
  const CUmemcpyAttributes* attributes;
  const std::size_t* first_of_attribute;
  std::size_t attributes_count;
};

// `failed`, unless null, gets the index of the refused copy; SIZE_MAX: no particular one.
CUresult copy_batch(const Batch& batch, std::size_t* failed, CUstream stream);

}  // namespace headrace::cuda::fake
