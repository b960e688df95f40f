// The same copies by way of Headrace's own backend, to be held against those of the driver alone.
#pragma once

#include "measure/experiments/gpu/setting.h"

namespace headrace::experiment_gpu {

// The largest piece that the backend takes.
inline constexpr Bytes kMostOfBackend = 64_MiB;

// Copies of `bytes` each, as many in flight as the backend takes; the value is payload per second.
Prepared prepare_backend(const GpuSetting& setting, Random& random);

}  // namespace headrace::experiment_gpu
