// SPDX-License-Identifier: Apache-2.0
// Copies one after the other in a stream, and pages that the driver moves: payload per second.
#pragma once

#include "measure/experiments/gpu/setting.h"

namespace headrace::experiment_gpu {

// Copies of `bytes` each over an area that is larger; of `both` the value is the sum, and the
// details `to_gpu` and `from_gpu` are what each direction had. What arrived is compared once.
Prepared prepare_copies(const GpuSetting& setting, Random& random);

// Managed memory, brought to the GPU or back to the host in parts of `bytes`.
Prepared prepare_prefetch(const GpuSetting& setting, Random& random);

}  // namespace headrace::experiment_gpu
