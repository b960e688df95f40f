// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/driver.h"

#include <dlfcn.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>

#include "core/fail.h"
#include "core/fork.h"

namespace headrace::cuda {
namespace {

// An initialised driver, and the process that initialised it.
struct Initialised {
  Driver driver;
  Origin origin;
};

GlobalMutex drivers_mutex(kRankOfGpu);

// The drivers by library name; never freed, since their libraries are never closed.
std::map<std::string, const Initialised*>& drivers() {
  static auto* const all = new std::map<std::string, const Initialised*>;
  return *all;
}

// Holds the lock: glibc's dlopen is not safe against a fork() in another thread. The child would
// inherit a half-changed state of the loader, and crash in its own dlopen.
void* open_library(const std::string& name) {
  const MutexLock lock(drivers_mutex);
  return ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
}

// A container that lacks the GPU device files of its host.
bool shut_out(const std::string& root) {
  const auto there = [&](const char* path) { return ::access((root + path).c_str(), F_OK) == 0; };
  return there("/proc/driver/nvidia/version") && !there("/dev/nvidiactl");
}

constexpr std::string_view kPassThrough =
    "the kernel has NVIDIA's driver and this container no /dev/nvidia*: pass the devices through "
    "(docker run --gpus all, podman run --device nvidia.com/gpu=all)";

Unexpected no_library(const std::string& library, const std::string& root) {
  const char* why = ::dlerror();
  if (shut_out(root)) return fail(ErrorCode::absent, "no {} here: {}", library, kPassThrough);
  if (std::getenv("HEADRACE_LIBCUDA") != nullptr) {
    return fail(ErrorCode::absent, "HEADRACE_LIBCUDA names no library that can be opened ({}); {}",
                why == nullptr ? library : why, "correct it, or unset it");
  }
  std::string_view reason = why == nullptr ? "the loader does not say why" : why;
  if (reason.starts_with(library + ": ")) reason.remove_prefix(library.size() + 2);
  return fail(ErrorCode::absent,
              "no {} here: {}; install NVIDIA's driver, or name its library in HEADRACE_LIBCUDA",
              library, reason);
}

Unexpected parent_has_it() {
  return fail(ErrorCode::unsupported,
              "the CUDA driver was initialised before a fork() and serves only the parent; start "
              "processes that use GPUs with spawn, or before the parent uses one");
}

Unexpected not_initialised(const Driver& driver, CUresult result) {
  if (result == CUDA_ERROR_NO_DEVICE || result == CUDA_ERROR_INVALID_DEVICE) {
    if (shut_out("")) return fail(ErrorCode::absent, "no GPU is visible: {}", kPassThrough);
    if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) {
      return fail(ErrorCode::absent,
                  "no GPU is visible: CUDA_VISIBLE_DEVICES is '{}'; unset it, or name one there is",
                  visible);
    }
    return fail(ErrorCode::absent,
                "the CUDA driver is there and finds no GPU; nvidia-smi should say why");
  }
  // Another library of this process had initialised it.
  if (result == CUDA_ERROR_NOT_INITIALIZED) return parent_has_it();
  if (result == CUDA_ERROR_STUB_LIBRARY) {
    return fail(ErrorCode::absent,
                "{} is the toolkit's stub and no driver; put the driver's before it in "
                "LD_LIBRARY_PATH, or name it in HEADRACE_LIBCUDA",
                driver.library);
  }
  auto failed = fail_cuda(driver, result, "cannot initialise the CUDA driver");
  failed.error().message += "; nvidia-smi should say why";
  return failed;
}

// No lock is held during the start: the driver may fork() to load its kernel modules.
Result<std::unique_ptr<const Initialised>> initialise(const std::string& library) {
  HEADRACE_TRY(Driver loaded, load_driver(library));
  if (const CUresult result = loaded.cuInit(0); result != CUDA_SUCCESS) {
    return not_initialised(loaded, result);
  }
  return std::make_unique<const Initialised>(std::move(loaded), Origin{});
}

const Initialised* known_driver(const std::string& library) {
  const MutexLock lock(drivers_mutex);
  const auto known = drivers().find(library);
  return known == drivers().end() ? nullptr : known->second;
}

ErrorCode code_of(CUresult result) {
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY: return ErrorCode::exhausted;
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_INVALID_DEVICE: return ErrorCode::absent;
    case CUDA_ERROR_NOT_PERMITTED: return ErrorCode::denied;
    case CUDA_ERROR_NOT_SUPPORTED: return ErrorCode::unsupported;
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_HANDLE:
    case CUDA_ERROR_INVALID_CONTEXT: return ErrorCode::invalid;
    default: return ErrorCode::io;
  }
}

}  // namespace

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string library_name() {
  const char* named = std::getenv("HEADRACE_LIBCUDA");
  return named == nullptr ? "libcuda.so.1" : named;
}

Result<Driver> load_driver(const std::string& library, const std::string& root) {
  if (library.empty()) {
    return fail(ErrorCode::absent,
                "HEADRACE_LIBCUDA is empty, so no CUDA driver is used; unset it");
  }
  // The loader opens any kind of file, and would wait at a pipe until another process writes.
  struct stat file{};
  if (library.contains('/') && ::stat(library.c_str(), &file) == 0 && !S_ISREG(file.st_mode)) {
    return fail(ErrorCode::absent,
                "HEADRACE_LIBCUDA names no library that can be opened ({}: no regular file); "
                "correct it, or unset it",
                library);
  }
  void* const handle = open_library(library);
  if (handle == nullptr) return no_library(library, root);
  enum Need { required, optional };
  struct Symbol {
    Need need;
    int since;
    const char* name;
    void** function;
  };
  Driver driver;
  driver.library = library;
  const Symbol symbols[] = {
#define HEADRACE_CUDA_SYMBOL(need, since, name, parameters) \
  {need, since, #name, reinterpret_cast<void**>(&driver.name)},
      HEADRACE_CUDA_SYMBOLS(HEADRACE_CUDA_SYMBOL)
#undef HEADRACE_CUDA_SYMBOL
  };
  for (const Symbol& symbol : symbols) *symbol.function = ::dlsym(handle, symbol.name);
  if (driver.cuDriverGetVersion != nullptr) driver.cuDriverGetVersion(&driver.version);
  for (const Symbol& symbol : symbols) {
    if (symbol.need == optional || *symbol.function != nullptr) continue;
    return fail(ErrorCode::unsupported,
                "the driver lacks {} ({}, CUDA {}); install one for CUDA {} or newer", symbol.name,
                library, version_text(driver.version), version_text(std::max(symbol.since, 12020)));
  }
  return driver;
}

Result<const Driver*> driver() {
  const std::string library = library_name();
  const Initialised* known = known_driver(library);
  if (known == nullptr) {
    HEADRACE_TRY(auto made, initialise(library));
    const MutexLock lock(drivers_mutex);
    const auto [at, first] = drivers().emplace(library, made.get());
    if (first) made.release();  // otherwise another thread was faster
    known = at->second;
  }
  if (known->origin.here()) return &known->driver;
  return parent_has_it();
}

Unexpected fail_cuda(const Driver& driver, CUresult result, std::string_view what) {
  const char* name = nullptr;
  const char* text = nullptr;
  driver.cuGetErrorName(result, &name);
  driver.cuGetErrorString(result, &text);
  return fail(code_of(result), "{}: {} ({})", what,
              name == nullptr ? fmt::format("CUDA error {}", static_cast<unsigned>(result)) : name,
              text == nullptr ? "unknown to this driver" : text);
}

bool ends_context(CUresult result) {
  switch (result) {
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_TENSOR_MEMORY_LEAK:
    case CUDA_ERROR_MPS_CLIENT_TERMINATED:
    case CUDA_ERROR_EXTERNAL_DEVICE:
    case CUDA_ERROR_UNKNOWN: return true;
    default: return false;
  }
}

}  // namespace headrace::cuda
