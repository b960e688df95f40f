// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "support/fake_cuda/context.h"
#include "support/fake_cuda/driver.h"

namespace headrace::cuda::fake {
namespace {

// An operation that comes this soon after the last counts as queued behind it.
constexpr std::chrono::microseconds kLateness{30};

}  // namespace

Device::Device(int ordinal, const Settings& settings) : ordinal_(ordinal), settings_(settings) {
  for (unsigned i = 0; i < settings.engines; ++i) engines_.push_back(std::make_unique<Engine>());
}

bool Device::attribute(CUdevice_attribute what, int& value) const {
  const Paradigm paradigm = settings_.paradigm;
  const bool ats = paradigm == Paradigm::ats;
  const bool numa = settings_.numa_node >= 0;
  switch (what) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: value = 1024; break;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: value = 32; break;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: value = 1'000'000; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: value = static_cast<int>(settings_.sms); break;
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY: value = 1; break;
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS: value = 1; break;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: value = settings_.mig ? 1 : ordinal_ + 1; break;
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID: value = 0; break;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: value = 1'000'000; break;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: value = 1024; break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: value = static_cast<int>(settings_.l2); break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: value = 2048; break;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT: value = static_cast<int>(settings_.engines); break;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING: value = 1; break;
    case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID: value = 0; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      value = static_cast<int>(settings_.compute / 10);
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      value = static_cast<int>(settings_.compute % 10);
      break;
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY: value = 1; break;
    case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS:
      value = ats || paradigm == Paradigm::hmm;
      break;
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
      value = paradigm != Paradigm::limited;
      break;
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM: value = 1; break;
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED: value = 1; break;
    case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES: value = ats; break;
    case CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST: value = ats; break;
    case CU_DEVICE_ATTRIBUTE_NUMA_CONFIG: value = numa ? 1 : 0; break;
    case CU_DEVICE_ATTRIBUTE_NUMA_ID: value = numa ? settings_.numa_node + ordinal_ : -1; break;
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID: value = settings_.host_node; break;
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: value = 0; break;
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED: value = 0; break;
    default: return false;
  }
  return true;
}

CUcontext Device::retain() {
  const MutexLock lock(mutex_);
  if (retained_++ == 0) {
    const auto handle = Handles<CUcontext, Context>::make();
    context_ = std::make_shared<Context>(*this, handle, settings_);
    driver().contexts.add(context_, handle);
  }
  return context_->handle();
}

bool Device::release() {
  std::shared_ptr<Context> ended;
  {
    const MutexLock lock(mutex_);
    if (retained_ == 0) return false;
    if (--retained_ > 0) return true;
    ended = std::move(context_);
    driver().contexts.remove(ended->handle());
    used_ = 0;
  }
  ended->close();
  return true;
}

bool Device::retained() const {
  const MutexLock lock(mutex_);
  return retained_ > 0;
}

bool Device::take_memory(std::size_t size) {
  const MutexLock lock(mutex_);
  if (size > settings_.memory - used_) return false;
  used_ += size;
  return true;
}

void Device::give_memory(std::size_t size) {
  const MutexLock lock(mutex_);
  used_ -= std::min(used_, size);
}

std::size_t Device::free_memory() const {
  const MutexLock lock(mutex_);
  return settings_.memory - used_;
}

std::chrono::nanoseconds Device::link_time(std::size_t operations, std::size_t size) const {
  double time = static_cast<double>(settings_.latency.count()) * static_cast<double>(operations);
  if (settings_.bandwidth > 0) time += static_cast<double>(size) * 1e9 / settings_.bandwidth;
  return std::chrono::nanoseconds(static_cast<std::int64_t>(time));
}

void Device::transfer(Context& context, Direction direction, std::size_t size, const Work& work) {
  const auto time = link_time(1, size);
  Engine& engine = *engines_[static_cast<std::size_t>(direction) % engines_.size()];
  const MutexLock lock(engine.mutex);
  // The bytes arrive at the end: a reader that does not wait sees the old bytes.
  if (time > std::chrono::nanoseconds(0)) {
    // Requested while the last was in progress: it began when the last ended.
    const auto now = Clock::now();
    const bool idle = now - engine.busy > kLateness;
    engine.busy = (idle ? now : engine.busy) + time;
    context.sleep_until(engine.busy);
  }
  if (settings_.data != 0 || direction == Direction::within) work();
}

void Device::use_link(Context& context, Clock::time_point begun, std::chrono::nanoseconds time) {
  if (time <= std::chrono::nanoseconds(0)) return;
  Clock::time_point end;
  {
    const MutexLock lock(kernels_.mutex);
    end = kernels_.busy = std::max(begun, kernels_.busy) + time;
  }
  context.sleep_until(end);
}

}  // namespace headrace::cuda::fake
