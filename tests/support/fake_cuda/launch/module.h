// SPDX-License-Identifier: Apache-2.0
// Modules and the functions in them. PTX is read as far as a driver must to refuse it.
#pragma once

#include <expected>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "backend/cuda/driver_api.h"
#include "support/fake_cuda/context.h"
#include "support/fake_cuda/launch/kernels.h"

namespace headrace::cuda::fake {

struct Module {
  std::shared_ptr<Context> context;
  std::set<std::string> entries;
};

struct Function {
  std::shared_ptr<Context> context;
  std::shared_ptr<Module> module;
  const Kernel* kernel;
};

struct Refused {
  CUresult result;
  std::string log;
};

// Returns the entries of a PTX text, or why a driver of `version` (as from cuDriverGetVersion) with
// a device of `compute` refuses it.
std::expected<std::set<std::string>, Refused> read_ptx(std::string_view text, int version,
                                                       unsigned compute);

}  // namespace headrace::cuda::fake
