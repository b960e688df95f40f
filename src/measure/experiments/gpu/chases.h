// SPDX-License-Identifier: Apache-2.0
// Latency: loads of which each gives the place of the next, by one thread of the GPU in memory of
// the host or its own, and by a CPU in memory of the GPU.
#pragma once

#include "measure/experiments/gpu/setting.h"

namespace headrace::experiment_gpu {

// Nanoseconds for each dependent load, in random order over `bytes`, a line of 128 bytes each.
Prepared prepare_chase(const GpuSetting& setting, Random& random);

// Whether CPUs read memory of the GPU where it is, and managed memory stays there meanwhile.
bool host_reads_gpu(const GpuTarget& gpu);

}  // namespace headrace::experiment_gpu
