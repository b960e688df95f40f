// SPDX-License-Identifier: Apache-2.0
// The library's kernels (kernels.h) as a module of a context. Thread-safe.
#pragma once

#include "backend/cuda/driver.h"

namespace headrace::cuda {

// Compiles them where the driver has not kept them; who has the module unloads it. The error has
// what the compiler said. Requires: a current context.
Result<CUmodule> load_kernels(const Driver& driver);

}  // namespace headrace::cuda
