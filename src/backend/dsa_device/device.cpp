#include "backend/dsa_device/device.h"

#include <utility>

#include "backend/dsa_device/scheduler.h"
#include "core/check.h"
#include "core/fail.h"
#include "core/thread.h"

namespace headrace::dsa {

SoftwareDevice::SoftwareDevice(DeviceOptions options)
    : options_(std::move(options)), scheduler_(std::make_unique<Scheduler>(options_)) {}

Result<std::unique_ptr<SoftwareDevice>> SoftwareDevice::open(DeviceOptions options) {
  HEADRACE_TRY_STATUS(check(options.setup));
  return std::unique_ptr<SoftwareDevice>(new SoftwareDevice(std::move(options)));
}

SoftwareDevice::~SoftwareDevice() { stop(); }

Status SoftwareDevice::start() {
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
      return std::unexpected<Error>(std::move(thread).error());
    }
    threads_.push_back(*std::move(thread));
  }
  return {};
}

void SoftwareDevice::stop() {
  MutexLock lock(threads_mutex_);
  scheduler_->release_threads();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

bool SoftwareDevice::enqcmd(std::size_t queue, AddressSpace& space, const Descriptor& descriptor) {
  return scheduler_->enqcmd(queue, space, descriptor);
}

void SoftwareDevice::movdir64b(std::size_t queue, AddressSpace& space,
                               const Descriptor& descriptor) {
  scheduler_->movdir64b(queue, space, descriptor);
}

bool SoftwareDevice::step() { return scheduler_->step(); }

std::size_t SoftwareDevice::run(std::size_t limit) {
  std::size_t steps = 0;
  while (steps < limit && step()) ++steps;
  return steps;
}

std::optional<Nanoseconds> SoftwareDevice::next_due() const { return scheduler_->next_due(); }
void SoftwareDevice::disable(std::size_t queue) { scheduler_->disable(queue); }
void SoftwareDevice::enable(std::size_t queue) { scheduler_->enable(queue); }
bool SoftwareDevice::enabled(std::size_t queue) const { return scheduler_->enabled(queue); }
void SoftwareDevice::halt() { scheduler_->halt(); }
void SoftwareDevice::recover() { scheduler_->recover(); }
bool SoftwareDevice::halted() const { return scheduler_->halted(); }
void SoftwareDevice::forget(AddressSpace& space) { scheduler_->forget(space); }
std::size_t SoftwareDevice::occupancy(std::size_t queue) const {
  return scheduler_->occupancy(queue);
}
bool SoftwareDevice::idle() const { return scheduler_->idle(); }
DeviceStats SoftwareDevice::stats() const { return scheduler_->stats(); }

}  // namespace headrace::dsa
