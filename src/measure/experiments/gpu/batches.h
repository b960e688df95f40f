// SPDX-License-Identifier: Apache-2.0
// What it costs to hand many small copies over: one call for each, one for all of them, or the
// kernel that gathers them, as the backend gives them to it.
#pragma once

#include "measure/experiments/gpu/setting.h"

namespace headrace::experiment_gpu {

// `count` copies of `bytes` each, between every second block of pinned memory of the host and
// neighbours in memory of the GPU, so that none continues another. The value is the calling
// thread's time for handing over, in nanoseconds for each copy; `bandwidth` counts until the last
// byte is there.
Prepared prepare_batches(const GpuSetting& setting, Random& random);

// Whether the kernel makes copies of so many bytes.
bool gathers(Bytes bytes);

}  // namespace headrace::experiment_gpu
