// SPDX-License-Identifier: Apache-2.0
// The library's kernels (kernels.h) as a module of a context. Thread-safe.
#pragma once

#include "backend/cuda/driver.h"

namespace headrace::cuda {

// Compiles the kernels if the driver has not cached them. The caller unloads the module. An error
// contains the compiler's message. Requires: a current context.
Result<CUmodule> load_kernels(const Driver& driver);

}  // namespace headrace::cuda
