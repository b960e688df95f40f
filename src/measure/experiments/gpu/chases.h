// SPDX-License-Identifier: Apache-2.0
// Latency of dependent loads: one GPU thread reads host or GPU memory, or a CPU reads GPU memory.
#pragma once

#include "measure/experiments/gpu/setting.h"

namespace headrace::experiment_gpu {

// Nanoseconds per dependent load, in random order over `bytes`, one load per line of 128 bytes.
Prepared prepare_chase(const GpuSetting& setting, Random& random);

// Whether CPUs read GPU memory in place, and managed memory stays there meanwhile.
bool host_reads_gpu(const GpuTarget& gpu);

}  // namespace headrace::experiment_gpu
