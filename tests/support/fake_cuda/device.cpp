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

std::optional<int> Device::attribute(CUdevice_attribute what) const {
  const Paradigm paradigm = settings_.paradigm;
  const bool ats = paradigm == Paradigm::ats;
  const bool numa = settings_.numa_node >= 0;
  switch (what) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: return static_cast<int>(settings_.sms);
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: return static_cast<int>(settings_.l2);
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT: return static_cast<int>(settings_.engines);
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM: return 1;
    case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS: return ats || paradigm == Paradigm::hmm;
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS: return paradigm != Paradigm::limited;
    case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES:
    case CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST: return ats;
    case CU_DEVICE_ATTRIBUTE_NUMA_CONFIG: return numa;
    case CU_DEVICE_ATTRIBUTE_NUMA_ID: return numa ? settings_.numa_node + ordinal_ : -1;
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID: return settings_.host_node;
  }
  return std::nullopt;
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
