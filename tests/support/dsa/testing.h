// SPDX-License-Identifier: Apache-2.0
// Memory, records and descriptors for tests of the emulator.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <span>

#include "tests/support/dsa/dsa.h"

namespace headrace::emulator::test {

inline constexpr std::uint32_t kRecord = flag::record_valid | flag::request_record;

inline std::uint64_t address_of(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

// Shared memory: a page that is hidden keeps its bytes.
class Pages {
 public:
  explicit Pages(std::size_t count) : size_(count * kPage) {
    void* at = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(at, MAP_FAILED);
    data_ = static_cast<std::byte*>(at);
    std::memset(data_, 0, size_);
  }
  ~Pages() { munmap(data_, size_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  std::span<std::byte> all() { return {data_, size_}; }
  std::uint64_t address(std::size_t offset = 0) const { return address_of(data_) + offset; }
  std::byte& operator[](std::size_t offset) { return data_[offset]; }
  // The page is not present until somebody touches it. Its neighbours may come with it.
  void hide(std::size_t page) const {
    EXPECT_EQ(madvise(data_ + page * kPage, kPage, MADV_DONTNEED), 0);
  }
  void protect(std::size_t page, int rights) const {
    EXPECT_EQ(mprotect(data_ + page * kPage, kPage, rights), 0);
  }

 private:
  const std::size_t size_;
  std::byte* data_;
};

// The status as a client sees it. Pairs with the device's last write of a record.
inline std::uint8_t status_of(Record& record) {
  return std::atomic_ref<std::uint8_t>(record.status).load(std::memory_order_acquire);
}

inline Descriptor make(Opcode opcode, Record& record, std::uint32_t flags = kRecord) {
  Descriptor descriptor;
  descriptor.set(opcode, flags);
  descriptor.record = address_of(&record);
  return descriptor;
}

inline Descriptor make_move(std::uint64_t from, std::uint64_t to, std::uint32_t size,
                            Record& record) {
  Descriptor descriptor = make(Opcode::memmove, record);
  descriptor.source = from;
  descriptor.destination = to;
  descriptor.size = size;
  return descriptor;
}

inline Descriptor make_batch(std::span<const Descriptor> list, Record& record) {
  Descriptor descriptor = make(Opcode::batch, record);
  descriptor.source = address_of(list.data());
  descriptor.size = static_cast<std::uint32_t>(list.size());
  return descriptor;
}

// A client of one device: 16 pages of memory, records, and the space that has them.
struct Client {
  Client() {
    for (std::size_t i = 0; i < memory.all().size(); ++i) {
      memory[i] = static_cast<std::byte>(i * 7 + i / kPage);
    }
  }
  Descriptor noop(std::size_t record) { return make(Opcode::noop, records[record]); }
  Descriptor move(std::size_t from, std::size_t to, std::uint32_t size, std::size_t record = 0) {
    return make_move(memory.address(from), memory.address(to), size, records[record]);
  }

  Pages memory{16};
  alignas(64) std::array<Record, 64> records{};
  alignas(64) std::array<Descriptor, 16> list{};
  const std::unique_ptr<AddressSpace> owned = ProcessMemory::open(getpid()).value();
  AddressSpace& space = *owned;
};

}  // namespace headrace::emulator::test
