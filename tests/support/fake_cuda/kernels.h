// SPDX-License-Identifier: Apache-2.0
// The library's kernels (src/backend/cuda/kernels.h) in software, by name. Each accesses only
// memory that its device may; other addresses are an error. Also modules and their functions: PTX
// is read as far as a driver must to refuse it.
//
// Thread-safe.
#pragma once

#include <cstddef>
#include <expected>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "backend/cuda/driver_api.h"
#include "support/fake_cuda/context.h"

namespace headrace::cuda::fake {

// Memory as seen by one launch on a device.
class DeviceView {
 public:
  explicit DeviceView(Context& context) : context_(context) {}

  // Where the fake accesses `size` bytes that the kernel reaches; `alignment` is the kernel's.
  std::expected<std::byte*, CUresult> reach(CUdeviceptr address, std::size_t size,
                                            std::size_t alignment);
  // The time of accesses beyond the device's own memory.
  std::chrono::nanoseconds time() const;

 private:
  Context& context_;
  std::size_t hops_ = 0;
  std::size_t remote_ = 0;  // bytes over the link
};

// The work of a launch, with its parameters already read.
using Launch = std::function<CUresult(DeviceView& memory)>;

struct Kernel {
  std::string_view name;
  unsigned parameters;
  Launch (*bind)(void** parameters);
  unsigned registers;  // per thread, from ptxas 12.9 for sm_90
};

// Null: there is no kernel of this name.
const Kernel* find_kernel(std::string_view name);

struct Module {
  std::shared_ptr<Context> context;
  std::set<std::string> entries;
};

struct Function {
  std::shared_ptr<Context> context;
  std::shared_ptr<Module> module;
  const Kernel* kernel;
};

}  // namespace headrace::cuda::fake
