#include "backend/dsa_sim/client_memory.h"

#include <algorithm>

#include "headrace/clock.h"

namespace headrace::dsa {

bool ClientMemory::wait(std::uint64_t number, Nanoseconds bound) {
  const Nanoseconds end = system_clock().now() + bound;
  MutexLock lock(mutex_);
  while (last_ < number) {
    const Nanoseconds left = end - system_clock().now();
    if (left <= Nanoseconds{0}) return false;
    arrived_.wait_for(mutex_, left);
  }
  return true;
}

std::size_t ClientMemory::read(std::uint64_t address, std::span<std::byte> to) {
  return process_->read(address, to);
}

std::size_t ClientMemory::write(std::uint64_t address, std::span<const std::byte> from) {
  return process_->write(address, from);
}

std::size_t ClientMemory::reach(std::uint64_t address, std::size_t size, Touch touch) {
  return process_->reach(address, size, touch);
}

bool ClientMemory::resolve(std::uint64_t address, Touch touch) {
  return process_->resolve(address, touch);
}

bool ClientMemory::write_record(std::uint64_t address, const Record& record) {
  if (!is_own(address)) return process_->write_record(address, record);
  MutexLock lock(mutex_);
  last_ = std::max(last_, (address - kOwn) / sizeof(Record));
  arrived_.notify_all();
  return true;
}

}  // namespace headrace::dsa
