// SPDX-License-Identifier: Apache-2.0
// DLPack: memory of GPUs given to other libraries, and what theirs is.
#pragma once

#include <nanobind/nanobind.h>

#include "handles.h"

namespace headrace::python {

// kDLCUDA or kDLCPU, and which.
std::pair<int, int> dlpack_device(const ObjectRef& ref);

// Its bytes by version 3 of Numba's protocol; AttributeError: it is no array of a GPU.
nb::dict cuda_array(const ObjectRef& ref);

// Waits, hearing signals, until what `stream` of the GPU of this memory has been given so far is
// done.
void wait_for_stream(const ObjectRef& ref, std::uint64_t stream);

// A capsule of GPU memory, as bytes, after the work submitted to `stream` so far has ended.
// BufferError: `options` request another device, a copy, or write access to read-only memory.
nb::object dlpack_of_gpu(const ObjectRef& ref, std::optional<std::uint64_t> stream,
                         const nb::kwargs& options);

}  // namespace headrace::python
