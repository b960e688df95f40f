// SPDX-License-Identifier: Apache-2.0
// NVIDIA's driver: its functions, found at run time, its devices and their contexts. The folder
// copies nothing by itself; the backend in backend/cuda/engines does.
//
// Facade of the folder. It lies below topology, which asks it for the GPUs. No CUDA package is
// needed to build; docs/design/gpu.md has the reasons. Thread-safe.
#pragma once

#include "backend/cuda/context.h"          // IWYU pragma: export
#include "backend/cuda/device.h"           // IWYU pragma: export
#include "backend/cuda/driver.h"           // IWYU pragma: export
#include "backend/cuda/driver_api.h"       // IWYU pragma: export
#include "backend/cuda/gather.h"           // IWYU pragma: export
#include "backend/cuda/kernels.h"          // IWYU pragma: export
#include "backend/cuda/stream_point.h"     // IWYU pragma: export
#include "backend/cuda/versioned_calls.h"  // IWYU pragma: export
