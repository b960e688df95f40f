// SPDX-License-Identifier: Apache-2.0
// The library's kernels (src/backend/cuda/kernels.h) in software, by name: each reads and writes
// memory as its device may, so that what a device cannot reach is an error, and managed pages move.
//
// Thread-safe.
#pragma once

#include <cstddef>
#include <expected>
#include <functional>
#include <string_view>

#include "backend/cuda/driver_api.h"
#include "support/fake_cuda/context.h"
#include "support/fake_cuda/managed/managed.h"

namespace headrace::cuda::fake {

// Memory as one launch on a device sees it.
class DeviceView {
 public:
  explicit DeviceView(Context& context) : context_(context) {}

  // Where the fake finds `size` bytes that the kernel reaches; `alignment` is what it asks for.
  std::expected<std::byte*, CUresult> reach(CUdeviceptr address, std::size_t size, bool write,
                                            std::size_t alignment = 1);
  // The time of what was reached beyond the device's own memory.
  std::chrono::nanoseconds time() const;

 private:
  Context& context_;
  Cost cost_;
  std::size_t hops_ = 0;
};

// What a launch does; its parameters have been read.
using Launch = std::function<CUresult(DeviceView& memory)>;

struct Kernel {
  std::string_view name;
  unsigned parameters;
  Launch (*bind)(void** parameters);
  unsigned registers;  // of a thread, as ptxas 12.9 has it for sm_90
};

// Null: there is none of this name.
const Kernel* find_kernel(std::string_view name);

}  // namespace headrace::cuda::fake
