// SPDX-License-Identifier: Apache-2.0
// How long it takes to have pinned memory: Headrace's, placed on a node, touched by its CPUs,
// registered and verified (Placement::pin), and the driver's cuMemHostAlloc.
#pragma once

#include "measure/experiments/gpu/setting.h"

namespace headrace::experiment_gpu {

inline constexpr std::string_view kPlaced = "placed";
inline constexpr std::string_view kHostAlloc = "cuMemHostAlloc";

// Nanoseconds for each MiB of `bytes`; giving it back is not counted.
Prepared prepare_allocation(const GpuSetting& setting);

}  // namespace headrace::experiment_gpu
