// SPDX-License-Identifier: Apache-2.0
// The cost of submitting many small copies: one call per copy, one call for all, or Headrace's
// gather kernel, which the backend uses.
#pragma once

#include "measure/experiments/gpu/setting.h"

namespace headrace::experiment_gpu {

// `count` copies of `bytes` each, between every second block of pinned host memory and adjacent
// blocks of GPU memory, so that no two copies can be merged. The value is the calling thread's
// submission time in nanoseconds per copy; `bandwidth` counts until the last byte has arrived.
Prepared prepare_batches(const GpuSetting& setting, Random& random);

// Whether the kernel can make copies of this size.
bool gathers(Bytes bytes);

}  // namespace headrace::experiment_gpu
