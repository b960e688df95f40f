// SPDX-License-Identifier: Apache-2.0
// What tests of the emulator share: a served device, a client's memory, descriptors as bytes.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "dsa_sim/driver/bus.h"
#include "dsa_sim/driver/queue_file.h"

namespace headrace::emulator::test {

// Descriptors wait until the test lets the device run, and take no time then.
inline ServedOptions by_hand() {
  const BytesPerSecond at_once{1e18};
  return {.rates = DeviceRates{.start_up = Nanoseconds{0}, .engine = at_once, .device = at_once}};
}

// One device with these queues.
inline Bus open_bus(std::vector<QueueSetup> queues, DeviceSetup setup = sapphire_rapids(),
                    ServedOptions options = by_hand()) {
  setup.queues = std::move(queues);
  auto bus = Bus::open({setup}, options);
  if (!bus) {
    ADD_FAILURE() << bus.error().message;
    std::abort();
  }
  return *std::move(bus);
}

// A client: bytes to copy, where to, and a record for each of some descriptors.
struct Client {
  Client() {
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7);
  }

  // Its memory, for one file.
  std::unique_ptr<AddressSpace> memory() {
    auto space = std::make_unique<DirectMemory>();
    space->add(*this);
    return space;
  }

  Descriptor copy(std::size_t record) {
    Descriptor descriptor;
    descriptor.set(Opcode::memmove, flag::record_valid | flag::request_record);
    descriptor.source = DirectMemory::number(from.data());
    descriptor.destination = DirectMemory::number(to.data());
    descriptor.size = static_cast<std::uint32_t>(from.size());
    descriptor.record = DirectMemory::number(&records[record]);
    return descriptor;
  }

  std::array<std::byte, 300> from{};
  std::array<std::byte, 300> to{};
  std::array<Record, 64> records{};
};

inline std::span<const std::byte> bytes_of(const std::vector<Descriptor>& descriptors) {
  return std::as_bytes(std::span(descriptors));
}

inline std::unique_ptr<QueueFile> open_file(Bus& bus, std::unique_ptr<AddressSpace> memory,
                                            std::size_t queue = 0) {
  auto file = QueueFile::open(*bus.devices()[0], queue, std::move(memory));
  if (!file) {
    ADD_FAILURE() << std::make_error_code(file.error()).message();
    std::abort();
  }
  return *std::move(file);
}

}  // namespace headrace::emulator::test
