// SPDX-License-Identifier: Apache-2.0
// The CUDA driver's library, opened at run time: one table of functions.
//
// It is never closed: the driver has threads of its own and cannot be unloaded safely. Thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "backend/cuda/driver_api.h"
#include "headrace/result.h"

namespace headrace::cuda {

// The functions by their exact names; optional ones may be nullptr.
struct Driver {
#define HEADRACE_CUDA_FUNCTION(need, since, name, parameters) CUresult(*name) parameters = nullptr;
  HEADRACE_CUDA_SYMBOLS(HEADRACE_CUDA_FUNCTION)
#undef HEADRACE_CUDA_FUNCTION

  std::string library;
  int version = 0;  // 1000 * major + 10 * minor of the CUDA version that it has
};

// "12.2" of 12020.
std::string version_text(int version);

// The library that is asked for: HEADRACE_LIBCUDA, else "libcuda.so.1"; empty: none is wanted.
std::string library_name();

// Opens a library and finds its functions; initialises nothing. absent: no such library.
// unsupported: it lacks a function that is needed. `root` has the /proc and /dev that say why.
Result<Driver> load_driver(const std::string& library, const std::string& root = "");

// The driver of this process, by library_name(), initialised (cuInit) at the first call and there
// until the process ends. As load_driver(), and: absent: no GPU is visible. unsupported: this is a
// child made by fork() of a process that had initialised it, which the driver cannot serve.
Result<const Driver*> driver();

// What came of a call in words: "cannot copy: CUDA_ERROR_OUT_OF_MEMORY (out of memory)", with the
// ErrorCode that fits.
Unexpected fail_cuda(const Driver& driver, CUresult result, std::string_view what);

// Whether the result says that the context is lost with all that was under way: no call on it will
// do anything again.
bool ends_context(CUresult result);

}  // namespace headrace::cuda
