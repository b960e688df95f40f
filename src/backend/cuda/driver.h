// SPDX-License-Identifier: Apache-2.0
// The CUDA driver's library, opened at run time: one table of functions.
//
// The library is never closed: the driver has its own threads and cannot be unloaded safely.
// Thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "backend/cuda/driver_api.h"
#include "headrace/result.h"

namespace headrace::cuda {

// The functions by their exact names; optional functions may be nullptr.
struct Driver {
#define HEADRACE_CUDA_FUNCTION(need, since, name, parameters) CUresult(*name) parameters = nullptr;
  HEADRACE_CUDA_SYMBOLS(HEADRACE_CUDA_FUNCTION)
#undef HEADRACE_CUDA_FUNCTION

  std::string library;
  int version = 0;  // CUDA version of the driver: 1000 * major + 10 * minor
};

// Returns "12.2" for 12020.
std::string version_text(int version);

// The name of the library to open: HEADRACE_LIBCUDA, else "libcuda.so.1". Empty: open none.
std::string library_name();

// Opens a library and finds its functions; initialises nothing. `root` contains the /proc and /dev
// that explain a failure. Errors: absent: no such library; unsupported: it lacks a required
// function.
Result<Driver> load_driver(const std::string& library, const std::string& root = "");

// The driver of this process, by library_name(). The first call initialises it (cuInit); it stays
// until the process ends. Errors: as load_driver(), and absent: no GPU is visible; unsupported:
// this process is a child, made by fork(), of a process that had initialised the driver, which
// cannot serve the child.
Result<const Driver*> driver();

// The result of a call in words, "cannot copy: CUDA_ERROR_OUT_OF_MEMORY (out of memory)", with the
// fitting ErrorCode.
Unexpected fail_cuda(const Driver& driver, CUresult result, std::string_view what);

// Whether the result means that the context is lost, with all work in flight. No later call on the
// context does anything.
bool ends_context(CUresult result);

}  // namespace headrace::cuda
