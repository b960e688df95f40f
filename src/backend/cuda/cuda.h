// SPDX-License-Identifier: Apache-2.0
// NVIDIA's driver: its functions, found at run time, its devices and their contexts. It copies
// nothing by itself; the backend that does is in backend/cuda/engines.
//
// Facade of the folder. Below topology, which asks it what GPUs there are. Nothing of CUDA is
// needed to build; docs/design/gpu.md has the reasons. Thread-safe.
#pragma once

#include "backend/cuda/context.h"          // IWYU pragma: export
#include "backend/cuda/device.h"           // IWYU pragma: export
#include "backend/cuda/driver.h"           // IWYU pragma: export
#include "backend/cuda/driver_api.h"       // IWYU pragma: export
#include "backend/cuda/gather.h"           // IWYU pragma: export
#include "backend/cuda/kernel_module.h"    // IWYU pragma: export
#include "backend/cuda/kernels.h"          // IWYU pragma: export
#include "backend/cuda/stream_point.h"     // IWYU pragma: export
#include "backend/cuda/versioned_calls.h"  // IWYU pragma: export
