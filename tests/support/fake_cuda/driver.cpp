// SPDX-License-Identifier: Apache-2.0
#include "support/fake_cuda/driver.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace headrace::cuda::fake {
namespace {

// Run by the loader. Reports on a pipe that it begins to open this library and, some time later,
// that it has finished.
[[gnu::constructor]] void opened() {
  const char* const pipe = std::getenv("HEADRACE_FAKE_CUDA_OPENED");
  if (pipe == nullptr) return;
  [[maybe_unused]] const auto begun = ::write(std::atoi(pipe), "b", 1);
  std::this_thread::sleep_for(std::chrono::milliseconds{100});
  [[maybe_unused]] const auto over = ::write(std::atoi(pipe), "e", 1);
}

Mutex& initialising() {
  static Mutex* const mutex = new Mutex;
  return *mutex;
}
std::atomic<Driver*> the_driver{nullptr};
std::atomic<pid_t> its_process{0};
thread_local bool inside_host_function = false;

// SplitMix64
std::uint64_t next_random(std::uint64_t& state) {
  std::uint64_t z = state += 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace

Driver::Driver(const Settings& with) : settings(with), random_(with.seed) {
  for (unsigned i = 0; i < settings.devices; ++i) {
    devices.push_back(std::make_unique<Device>(static_cast<int>(i), settings));
  }
}

Device* Driver::device(CUdevice ordinal) const {
  const auto index = static_cast<std::size_t>(ordinal);
  return ordinal >= 0 && index < devices.size() ? devices[index].get() : nullptr;
}

std::shared_ptr<Stream> Driver::stream(Context& current, CUstream handle) {
  const auto number = reinterpret_cast<std::uintptr_t>(handle);
  if (number <= 1) return current.default_of({});
  if (number == 2) return current.default_of(std::this_thread::get_id());
  return streams.find(handle);
}

void Driver::forget(const Context& context) {
  const auto its = [&context](const auto& each) { return each.context.get() == &context; };
  functions.remove_if(its);
  modules.remove_if(its);
  events.remove_if(its);
  streams.remove_if(its);
  memory.remove_all(&context);
}

bool Driver::fails() {
  if (settings.fail <= 0) return false;
  const MutexLock lock(mutex_);
  return static_cast<double>(next_random(random_) >> 11) * 0x1p-53 < settings.fail;
}

Driver& driver() { return *the_driver.load(); }

CUresult ready() {
  if (the_driver.load() == nullptr || its_process.load() != getpid()) {
    return CUDA_ERROR_NOT_INITIALIZED;  // also in a child after fork()
  }
  return inside_host_function ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS;
}

CUresult initialise() {
  if (the_driver.load() != nullptr) {
    return its_process.load() == getpid() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
  }
  const MutexLock lock(initialising());
  if (the_driver.load() != nullptr) return CUDA_SUCCESS;
  const char* text = std::getenv("HEADRACE_FAKE_CUDA");
  const auto settings = parse_settings(text == nullptr ? "" : text);
  if (!settings) {
    std::fprintf(stderr, "%s\n", settings.error().c_str());
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (settings->devices == 0) return CUDA_ERROR_NO_DEVICE;
  its_process = getpid();
  the_driver = new Driver(*settings);
  return CUDA_SUCCESS;
}

std::vector<std::shared_ptr<Context>>& context_stack() {
  static thread_local std::vector<std::shared_ptr<Context>> stack;
  return stack;
}

CUstreamCaptureMode& capture_mode() {
  static thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return mode;
}

bool others_capture() {
  return driver().settings.capturing != 0 && capture_mode() == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

void in_host_function(bool inside) { inside_host_function = inside; }

void spend(std::size_t nanoseconds) {
  if (nanoseconds == 0) return;
  const auto end = Clock::now() + std::chrono::nanoseconds(nanoseconds);
  while (Clock::now() < end) {
  }
}

}  // namespace headrace::cuda::fake
