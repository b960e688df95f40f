// SPDX-License-Identifier: Apache-2.0
// What tests of the emulator share: a client with memory and records, a device, and the
// short ways to make descriptors.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "tests/support/dsa/dsa.h"

namespace headrace::emulator::test {

inline constexpr std::uint32_t kRecord = flag::record_valid | flag::request_record;

// Page-aligned bytes.
class Pages {
 public:
  explicit Pages(std::size_t pages)
      : size_(pages * kPage), data_(static_cast<std::byte*>(std::aligned_alloc(kPage, size_))) {
    std::memset(data_, 0, size_);
  }
  ~Pages() { std::free(data_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  std::span<std::byte> all() { return {data_, size_}; }
  std::span<std::byte> at(std::size_t offset, std::size_t size) {
    return all().subspan(offset, size);
  }
  std::uint64_t address(std::size_t offset = 0) const {
    return DirectMemory::number(data_) + offset;
  }
  std::byte& operator[](std::size_t offset) { return data_[offset]; }

 private:
  const std::size_t size_;
  std::byte* const data_;
};

// The status as a client sees it.
inline std::uint8_t status_of(Record& record) {
  // Pairs with the release store of the device.
  return std::atomic_ref<std::uint8_t>(record.status).load(std::memory_order_acquire);
}

inline Descriptor make(Opcode opcode, Record& record, std::uint32_t flags = kRecord) {
  Descriptor descriptor;
  descriptor.set(opcode, flags);
  descriptor.record = DirectMemory::number(&record);
  return descriptor;
}

inline Descriptor make_move(std::uint64_t from, std::uint64_t to, std::uint32_t size,
                            Record& record, std::uint32_t flags = kRecord) {
  Descriptor descriptor = make(Opcode::memmove, record, flags);
  descriptor.source = from;
  descriptor.destination = to;
  descriptor.size = size;
  return descriptor;
}

inline Descriptor make_batch(std::span<const Descriptor> list, Record& record,
                             std::uint32_t flags = kRecord) {
  Descriptor descriptor = make(Opcode::batch, record, flags);
  descriptor.source = DirectMemory::number(list.data());
  descriptor.size = static_cast<std::uint32_t>(list.size());
  return descriptor;
}

inline std::unique_ptr<Device> open_device(DeviceOptions options = {}) {
  auto device = Device::open(std::move(options));
  if (!device) {
    ADD_FAILURE() << device.error().message;
    std::abort();
  }
  return *std::move(device);
}

// A client of one device: 16 pages of memory and 64 records, all of it known to `space`.
class TestClient {
 public:
  static constexpr std::size_t kPages = 16;

  TestClient() {
    space.add(memory.all());
    space.add(records);
  }
  void clear_records() { records = {}; }

  Pages memory{kPages};
  std::array<Record, 64> records{};
  DirectMemory space;
};

// A device that a test steps, and a client of it.
class DeviceTest : public testing::Test {
 protected:
  void use(DeviceOptions options) { device_ = open_device(std::move(options)); }
  // Executes one descriptor; its record, or status 0.
  Record execute(Descriptor descriptor, std::size_t queue = 0) {
    Record& record = client_.records[0];
    record = {};
    descriptor.record = DirectMemory::number(&record);
    EXPECT_TRUE(device_->enqcmd(queue, client_.space, descriptor));
    device_->run();
    return record;
  }
  Record execute_batch(std::span<const Descriptor> list, std::uint32_t flags = kRecord) {
    Record& record = client_.records[0];
    record = {};
    client_.space.add(std::span(reinterpret_cast<std::byte*>(const_cast<Descriptor*>(list.data())),
                                list.size_bytes()));
    EXPECT_TRUE(device_->enqcmd(0, client_.space, make_batch(list, record, flags)));
    device_->run();
    return record;
  }
  Descriptor descriptor(Opcode opcode, std::uint32_t flags = kRecord) {
    return make(opcode, client_.records[0], flags);
  }
  std::uint64_t at(std::size_t offset) const { return client_.memory.address(offset); }
  std::span<std::byte> bytes(std::size_t offset, std::size_t size) {
    return client_.memory.at(offset, size);
  }
  void randomise(std::uint64_t seed = 1) {
    Random random(seed);
    for (std::byte& byte : client_.memory.all()) byte = static_cast<std::byte>(random());
  }
  std::vector<std::byte> copy_of(std::size_t offset, std::size_t size) {
    const auto part = bytes(offset, size);
    return {part.begin(), part.end()};
  }
  bool same(std::size_t offset, std::span<const std::byte> expected) {
    return std::memcmp(bytes(offset, expected.size()).data(), expected.data(), expected.size()) ==
           0;
  }

  TestClient client_;
  std::unique_ptr<Device> device_ = open_device();
};

}  // namespace headrace::emulator::test
