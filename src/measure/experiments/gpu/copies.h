// SPDX-License-Identifier: Apache-2.0
// Consecutive copies in a stream, and pages that the driver moves: payload per second.
#pragma once

#include "measure/experiments/gpu/setting.h"

namespace headrace::experiment_gpu {

// Copies of `bytes` each over a larger area. For `both` the value is the sum, and the details
// `to_gpu` and `from_gpu` are the two directions. The copied bytes are compared once.
Prepared prepare_copies(const GpuSetting& setting, Random& random);

// Managed memory, prefetched to the GPU or back to the host in parts of `bytes`.
Prepared prepare_prefetch(const GpuSetting& setting, Random& random);

}  // namespace headrace::experiment_gpu
