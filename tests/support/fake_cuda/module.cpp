// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <cstring>
#include <expected>
#include <utility>

#include "support/fake_cuda/driver.h"

namespace headrace::cuda::fake {
namespace {

// Returns the text behind the first `word`, without blanks; empty if it does not occur.
std::string_view behind(std::string_view text, std::string_view word) {
  const std::size_t at = text.find(word);
  if (at == std::string_view::npos) return {};
  text.remove_prefix(at + word.size());
  text.remove_prefix(std::min(text.size(), text.find_first_not_of(" \t")));
  return text;
}

unsigned number(std::string_view text) {
  unsigned value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// The newest PTX that a driver takes, 10 * major + minor, from CUDA's release notes.
unsigned newest_ptx(int version) {
  if (version >= 13000) return 90;
  if (version >= 12080) return 87;
  if (version >= 12020) return 82;
  return 70;
}

// Writes the log where a JIT option asks for it, cut to its size.
void write_log(const std::string& log, unsigned count, const CUjit_option* options, void** values) {
  char* buffer = nullptr;
  std::size_t size = 0;
  for (unsigned i = 0; i < count; ++i) {
    if (options[i] == CU_JIT_ERROR_LOG_BUFFER) buffer = static_cast<char*>(values[i]);
    if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) {
      size = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(values[i]));
    }
  }
  if (buffer == nullptr || size == 0) return;
  const std::size_t length = std::min(log.size(), size - 1);
  std::memcpy(buffer, log.data(), length);
  buffer[length] = 0;
}

CUresult launch(Stream& its, const Kernel& kernel, void** parameters) {
  Context& context = *its.context;
  its.enqueue([&context, launched = kernel.bind(parameters)] {
    const auto begun = Clock::now();
    DeviceView memory(context);
    const CUresult result = launched(memory);
    context.device().use_link(context, begun, memory.time());
    return result;
  });
  return CUDA_SUCCESS;
}

struct Refused {
  CUresult result;
  std::string log;
};

// Returns the entries of a PTX text, or why a driver of `version` (as from cuDriverGetVersion) with
// a device of `compute` refuses it.
std::expected<std::set<std::string>, Refused> read_ptx(std::string_view text, int version,
                                                       unsigned compute) {
  const std::string_view made = behind(text, ".version");
  const std::string_view target = behind(text, ".target sm_");
  const std::size_t dot = made.find('.');
  if (made.empty() || target.empty() || dot == std::string_view::npos) {
    return std::unexpected(Refused{CUDA_ERROR_INVALID_PTX, "no .version and .target"});
  }
  if (number(made) * 10 + number(made.substr(dot + 1)) > newest_ptx(version)) {
    return std::unexpected(Refused{CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
                                   "Unsupported .version " + std::string(made.substr(0, dot + 2))});
  }
  if (number(target) > compute) {
    return std::unexpected(Refused{CUDA_ERROR_NO_BINARY_FOR_GPU, "for a newer GPU"});
  }
  std::set<std::string> entries;
  for (auto rest = behind(text, ".entry"); !rest.empty(); rest = behind(rest, ".entry")) {
    entries.emplace(rest.substr(0, rest.find_first_of(" (\n")));
  }
  return entries;
}

}  // namespace

HEADRACE_FAKE_EXPORT CUresult cuModuleLoadDataEx(CUmodule* module, const void* image,
                                                 unsigned int count, CUjit_option* options,
                                                 void** values) {
  return in_context_alone([&](Context& current) -> CUresult {
    if (module == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (count > 0 && (options == nullptr || values == nullptr)) return CUDA_ERROR_INVALID_VALUE;
    auto entries =
        read_ptx(static_cast<const char*>(image), driver_version(), driver().settings.compute);
    if (!entries) {
      write_log(entries.error().log, count, options, values);
      return entries.error().result;
    }
    auto made = std::make_shared<Module>();
    made->context = current.shared_from_this();
    made->entries = std::move(*entries);
    *module = driver().modules.add(std::move(made));
    return CUDA_SUCCESS;
  });
}

HEADRACE_FAKE_EXPORT CUresult cuModuleUnload(CUmodule module) {
  return in_context_alone([&](Context&) -> CUresult {
    const auto removed = driver().modules.remove(module);
    if (removed == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    driver().functions.remove_if([&](const Function& each) { return each.module == removed; });
    return CUDA_SUCCESS;
  });
}

HEADRACE_FAKE_EXPORT CUresult cuModuleGetFunction(CUfunction* function, CUmodule module,
                                                  const char* name) {
  return in_context([&](Context&) -> CUresult {
    if (function == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto found = driver().modules.find(module);
    if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (!found->entries.contains(name)) return CUDA_ERROR_NOT_FOUND;
    const Kernel* const kernel = find_kernel(name);
    if (kernel == nullptr) return CUDA_ERROR_NOT_SUPPORTED;  // the fake runs no PTX
    *function =
        driver().functions.add(std::make_shared<Function>(Function{found->context, found, kernel}));
    return CUDA_SUCCESS;
  });
}

// Limited by registers and threads, with the counts of multiprocessors since compute capability
// 7.0.
HEADRACE_FAKE_EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(
    int* blocks, CUfunction function, int threads, std::size_t shared_bytes) {
  return in_context([&](Context&) -> CUresult {
    const auto found = driver().functions.find(function);
    if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (blocks == nullptr || threads < 1 || threads > 1024) return CUDA_ERROR_INVALID_VALUE;
    if (shared_bytes > 0) return CUDA_ERROR_NOT_SUPPORTED;
    constexpr unsigned kRegisters = 65536;
    constexpr unsigned kThreads = 2048;
    constexpr unsigned kBlocks = 32;
    const unsigned warps = (static_cast<unsigned>(threads) + 31) / 32;
    const unsigned registers = (found->kernel->registers + 7) / 8 * 8 * 32 * warps;
    *blocks =
        static_cast<int>(std::min({kRegisters / registers, kThreads / (32 * warps), kBlocks}));
    return CUDA_SUCCESS;
  });
}

HEADRACE_FAKE_EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x,
                                             unsigned int grid_y, unsigned int grid_z,
                                             unsigned int block_x, unsigned int block_y,
                                             unsigned int block_z, unsigned int, CUstream stream,
                                             void** parameters, void** extra) {
  return on_stream(stream, [&](Stream& its) -> CUresult {
    const auto found = driver().functions.find(function);
    if (found == nullptr || found->context != its.context) return CUDA_ERROR_INVALID_HANDLE;
    if (extra != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
    for (const unsigned size : {grid_x, grid_y, grid_z, block_x, block_y, block_z}) {
      if (size == 0) return CUDA_ERROR_INVALID_VALUE;
    }
    if (1UL * block_x * block_y * block_z > 1024 || parameters == nullptr) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (driver().fails()) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    spend(driver().settings.launch_cost);
    return launch(its, *found->kernel, parameters);
  });
}

}  // namespace headrace::cuda::fake
