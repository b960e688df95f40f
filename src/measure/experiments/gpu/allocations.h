// SPDX-License-Identifier: Apache-2.0
// The time to allocate pinned memory: by Headrace, placed on a node, touched by its CPUs,
// registered and verified (Placement::pin), and by the driver's cuMemHostAlloc.
#pragma once

#include "measure/experiments/gpu/setting.h"

namespace headrace::experiment_gpu {

inline constexpr std::string_view kPlaced = "placed";
inline constexpr std::string_view kHostAlloc = "cuMemHostAlloc";

// Nanoseconds per MiB of `bytes`; the release is not counted.
Prepared prepare_allocation(const GpuSetting& setting);

}  // namespace headrace::experiment_gpu
