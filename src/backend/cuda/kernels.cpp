// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/kernels.h"

#include <algorithm>
#include <array>

namespace headrace::cuda {

Result<CUmodule> load_kernels(const Driver& driver) {
  // Zero-terminated, whatever the driver writes.
  std::array<char, 1024> log{};
  std::array options = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  std::array<void*, 2> values = {log.data(), reinterpret_cast<void*>(log.size() - 1)};
  CUmodule module = nullptr;
  const CUresult result = driver.cuModuleLoadDataEx(
      &module, kKernelsPtx, static_cast<unsigned>(options.size()), options.data(), values.data());
  if (result == CUDA_SUCCESS) return module;
  auto failed = fail_cuda(driver, result, "cannot load the kernels");
  std::string_view said(log.data());
  said = said.substr(0, said.find_last_not_of(" \n") + 1);
  if (!said.empty()) failed.error().message.append("; its compiler says: ").append(said);
  return failed;
}

}  // namespace headrace::cuda
