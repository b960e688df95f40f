// SPDX-License-Identifier: Apache-2.0
#include "tests/support/dsa/device/device.h"

#include <utility>

#include "core/check.h"
#include "core/fail.h"
#include "core/thread.h"
#include "tests/support/dsa/device/scheduler.h"

namespace headrace::emulator {

Device::Device(DeviceOptions options)
    : options_(std::move(options)), scheduler_(std::make_unique<Scheduler>(options_)) {}

Result<std::unique_ptr<Device>> Device::open(DeviceOptions options) {
  HEADRACE_TRY_STATUS(check(options.setup));
  return std::unique_ptr<Device>(new Device(std::move(options)));
}

Device::~Device() {
  if (origin_.here()) {
    stop();
  } else {
    abandon(std::move(threads_));
    abandon(std::move(scheduler_));
  }
}

Status Device::start() {
  MutexLock lock(threads_mutex_);
  if (!threads_.empty()) return {};
  scheduler_->hold_threads();
  for (std::size_t i = 0; i < scheduler_->engines(); ++i) {
    auto thread =
        start_thread("dsa engine", [scheduler = scheduler_.get(), i] { scheduler->serve(i); });
    if (!thread) {
      scheduler_->release_threads();
      for (std::thread& started : threads_) started.join();
      threads_.clear();
      return Unexpected(std::move(thread).error());
    }
    threads_.push_back(*std::move(thread));
  }
  return {};
}

void Device::stop() {
  MutexLock lock(threads_mutex_);
  scheduler_->release_threads();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

bool Device::enqcmd(std::size_t queue, AddressSpace& space, const Descriptor& descriptor) {
  return scheduler_->enqcmd(queue, space, descriptor);
}

void Device::movdir64b(std::size_t queue, AddressSpace& space, const Descriptor& descriptor) {
  scheduler_->movdir64b(queue, space, descriptor);
}

bool Device::step() { return scheduler_->step(); }

std::size_t Device::run(std::size_t limit) {
  std::size_t steps = 0;
  while (steps < limit && step()) ++steps;
  return steps;
}

std::optional<Nanoseconds> Device::next_due() const { return scheduler_->next_due(); }
void Device::disable(std::size_t queue) { scheduler_->disable(queue); }
void Device::enable(std::size_t queue) { scheduler_->enable(queue); }
bool Device::enabled(std::size_t queue) const { return scheduler_->enabled(queue); }
void Device::halt() { scheduler_->halt(); }
void Device::recover() { scheduler_->recover(); }
bool Device::halted() const { return scheduler_->halted(); }
void Device::forget(AddressSpace& space) { scheduler_->forget(space); }
bool Device::drain(const AddressSpace& space, Nanoseconds bound) {
  return scheduler_->drain(space, bound);
}
std::size_t Device::occupancy(std::size_t queue) const { return scheduler_->occupancy(queue); }
bool Device::idle() const { return scheduler_->idle(); }
DeviceStats Device::stats() const { return scheduler_->stats(); }

}  // namespace headrace::emulator
