// SPDX-License-Identifier: Apache-2.0
#include "tests/support/dsa/memory/address_space.h"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace headrace::emulator {
namespace {

std::uint64_t page_of(std::uint64_t address) { return address & ~(kPage - 1); }

std::uint64_t begin_of(std::span<const std::byte> memory) {
  return DirectMemory::number(memory.data());
}

void insert_pages(std::set<std::uint64_t>& pages, std::span<const std::byte> memory) {
  if (memory.empty()) return;
  const std::uint64_t last = page_of(begin_of(memory) + memory.size() - 1);
  for (std::uint64_t page = page_of(begin_of(memory)); page <= last; page += kPage) {
    pages.insert(page);
  }
}

}  // namespace

bool AddressSpace::write_record(std::uint64_t address, const Record& record) {
  const auto bytes = std::as_bytes(std::span(&record, 1));
  if (write(address + 1, bytes.subspan(1)) < bytes.size() - 1) return false;
  return write(address, bytes.first(1)) == 1;
}

void DirectMemory::add(std::span<std::byte> memory, bool writable) {
  MutexLock lock(mutex_);
  mappings_[begin_of(memory)] = {begin_of(memory) + memory.size(), writable};
}

void DirectMemory::remove(std::span<std::byte> memory) {
  MutexLock lock(mutex_);
  mappings_.erase(begin_of(memory));
}

void DirectMemory::hide(std::span<const std::byte> memory, Touch touch) {
  MutexLock lock(mutex_);
  insert_pages(touch == Touch::read ? absent_ : unwritable_, memory);
}

void DirectMemory::forbid(std::span<const std::byte> memory) {
  MutexLock lock(mutex_);
  insert_pages(forbidden_, memory);
}

void DirectMemory::show_all() {
  MutexLock lock(mutex_);
  absent_.clear();
  unwritable_.clear();
  forbidden_.clear();
}

void DirectMemory::refuse_requests(bool refused) {
  MutexLock lock(mutex_);
  refusing_ = refused;
}

std::uint64_t DirectMemory::resolved() const {
  MutexLock lock(mutex_);
  return resolved_;
}

// The mapping that holds the byte at `address`, if any.
const DirectMemory::Mapping* DirectMemory::find(std::uint64_t address) const {
  auto mapping = mappings_.upper_bound(address);
  if (mapping == mappings_.begin()) return nullptr;
  --mapping;
  return address < mapping->second.end ? &mapping->second : nullptr;
}

bool DirectMemory::page_there(std::uint64_t page, Touch touch) const {
  if (absent_.contains(page) || forbidden_.contains(page)) return false;
  return touch == Touch::read || !unwritable_.contains(page);
}

std::size_t DirectMemory::reach(std::uint64_t address, std::size_t size, Touch touch) {
  MutexLock lock(mutex_);
  std::size_t done = 0;
  while (done < size) {
    const std::uint64_t at = address + done;
    const Mapping* mapping = find(at);
    if (mapping == nullptr || (touch == Touch::write && !mapping->writable)) break;
    if (!page_there(page_of(at), touch)) break;
    const std::uint64_t end = std::min(mapping->end, page_of(at) + kPage);
    done = static_cast<std::size_t>(std::min<std::uint64_t>(size, done + (end - at)));
  }
  return done;
}

// The copying itself is not under the mutex: engines work side by side, and a client that reads
// what is still being written is a race for the sanitizer, as it is on a real machine.
std::size_t DirectMemory::read(std::uint64_t address, std::span<std::byte> to) {
  const std::size_t size = reach(address, to.size(), Touch::read);
  if (size > 0) std::memcpy(to.data(), reinterpret_cast<const void*>(address), size);
  return size;
}

std::size_t DirectMemory::write(std::uint64_t address, std::span<const std::byte> from) {
  const std::size_t size = reach(address, from.size(), Touch::write);
  if (size > 0) std::memcpy(reinterpret_cast<void*>(address), from.data(), size);
  return size;
}

bool DirectMemory::resolve(std::uint64_t address, Touch touch) {
  MutexLock lock(mutex_);
  const Mapping* mapping = find(address);
  const std::uint64_t page = page_of(address);
  if (refusing_ || mapping == nullptr || forbidden_.contains(page)) return false;
  if (touch == Touch::write && !mapping->writable) return false;
  resolved_ += absent_.erase(page);
  if (touch == Touch::write) resolved_ += unwritable_.erase(page);
  return true;
}

bool DirectMemory::write_record(std::uint64_t address, const Record& record) {
  if (reach(address, sizeof(record), Touch::write) < sizeof(record)) return false;
  auto* to = reinterpret_cast<std::uint8_t*>(address);
  std::memcpy(to + 1, &record.result, sizeof(record) - 1);
  // Pairs with the acquire load of whoever waits for the record.
  std::atomic_ref<std::uint8_t>(*to).store(record.status, std::memory_order_release);
  return true;
}

}  // namespace headrace::emulator
