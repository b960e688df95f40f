// SPDX-License-Identifier: Apache-2.0
// The device with threads of its own, and several that submit. For the sanitizers: nothing here
// depends on how long anything takes.
#include <chrono>
#include <thread>

#include "tests/support/dsa/device/device_testing.h"

namespace headrace::emulator {
namespace {

using namespace test;

// Nobody waits longer than this for a record; only a broken device lets it pass.
constexpr auto kPatience = std::chrono::seconds{60};

bool wait_for(Record& record) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (status_of(record) == 0) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

DeviceSetup busy_setup() {
  DeviceSetup setup = dsa3();
  setup.groups = {GroupSetup{3}, GroupSetup{1}};
  setup.queues = {QueueSetup{.size = 16, .threshold = 8}, QueueSetup{.size = 16, .group = 1}};
  return setup;
}

// Submits until it is taken. A device that is never well again is a failure of the test.
void push(Device& device, std::size_t queue, AddressSpace& space, const Descriptor& of) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!device.enqcmd(queue, space, of)) {
    ASSERT_LT(std::chrono::steady_clock::now(), end);
    std::this_thread::yield();
  }
}

// Copies pages around and sees after each record that they are there.
void copy_around(Device& device, std::uint64_t seed, int rounds) {
  TestClient client;
  Random random(seed);
  for (std::byte& byte : client.memory.all()) byte = static_cast<std::byte>(random());
  for (int round = 0; round < rounds; ++round) {
    client.clear_records();
    const std::size_t count = 1 + random.below(4);
    for (std::size_t i = 0; i < count; ++i) {
      client.space.hide(client.memory.at(random.below(TestClient::kPages) * kPage, 1));
      push(device, random.below(2), client.space,
           make_move(client.memory.address(i * kPage), client.memory.address((8 + i) * kPage),
                     static_cast<std::uint32_t>(1 + random.below(kPage)), client.records[i],
                     kRecord | flag::block_on_fault));
    }
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_TRUE(wait_for(client.records[i]));
      ASSERT_EQ(client.records[i].status, 1);
      ASSERT_EQ(client.memory[(8 + i) * kPage], client.memory[i * kPage]);
    }
  }
  device.forget(client.space);
}

void batch_around(Device& device, std::uint64_t seed, int rounds) {
  TestClient client;
  Random random(seed);
  alignas(64) std::array<Descriptor, 8> list;
  client.space.add(list);
  for (int round = 0; round < rounds; ++round) {
    client.clear_records();
    for (std::size_t i = 0; i < list.size(); ++i) {
      client.memory[i * kPage] = static_cast<std::byte>(random());
      // A chain: each copies what the one before it wrote.
      list[i] = make_move(client.memory.address(i * kPage), client.memory.address((i + 1) * kPage),
                          64, client.records[i + 1], kRecord | flag::fence);
    }
    const std::byte first = client.memory[0];
    push(device, random.below(2), client.space, make_batch(list, client.records[0]));
    ASSERT_TRUE(wait_for(client.records[0]));
    ASSERT_EQ(client.records[0].status, 1);
    ASSERT_EQ(client.memory[list.size() * kPage], first);
  }
  device.forget(client.space);
}

TEST(DeviceThreads, ManyClientsOneDevice) {
  const auto device = open_device({.setup = busy_setup()});
  ASSERT_TRUE(device->start());
  ASSERT_TRUE(device->start()) << "again: nothing more";
  std::vector<std::thread> clients;
  for (std::uint64_t i = 0; i < 3; ++i) {
    clients.emplace_back([&, i] { copy_around(*device, i, 100); });
    clients.emplace_back([&, i] { batch_around(*device, i, 50); });
  }
  for (std::thread& client : clients) client.join();
  device->stop();
  EXPECT_TRUE(device->idle());
  EXPECT_EQ(device->stats().failed, 0U);
}

// Clients come and go while queues are disabled and the device halts: whoever was abandoned goes
// away at once, and nothing is written for it any more.
TEST(DeviceThreads, WhatIsAbandonedIsNotTouchedAgain) {
  const auto device = open_device({.setup = busy_setup()});
  ASSERT_TRUE(device->start());
  std::atomic<int> left = 3;
  std::vector<std::thread> clients;
  for (std::uint64_t i = 0; i < 3; ++i) {
    clients.emplace_back([&, i] {
      Random random(i);
      for (int round = 0; round < 200; ++round) {
        auto client = std::make_unique<TestClient>();
        alignas(64) std::array<Descriptor, 8> list;
        client->space.add(list);
        // Nothing here writes where another does, so that any race is the device's.
        const auto copy_to = [&](std::size_t page) {
          return make_move(client->memory.address(0), client->memory.address(page * kPage), kPage,
                           client->records[page]);
        };
        for (std::size_t n = 0; n < list.size(); ++n) list[n] = copy_to(1 + n);
        for (std::size_t n = 0; n < 4; ++n) {
          const Descriptor of = n == 1 ? make_batch(list, client->records[0]) : copy_to(10 + n);
          device->enqcmd(random.below(2), client->space, of);
        }
        device->forget(client->space);
      }
      --left;
    });
  }
  while (left > 0) {
    device->disable(0);
    device->enable(0);
    device->halt();
    device->recover();
    std::this_thread::yield();
  }
  for (std::thread& client : clients) client.join();
  const DeviceStats stats = device->stats();
  EXPECT_EQ(stats.failed, 0U);
  EXPECT_TRUE(device->idle());
}

TEST(DeviceThreads, StopsAndGoesOn) {
  TestClient client;
  const auto device = open_device({.setup = busy_setup()});
  for (std::size_t i = 0; i < 5; ++i) {
    push(*device, 0, client.space, make(Opcode::noop, client.records[i]));
  }
  device->stop();
  EXPECT_EQ(device->occupancy(0), 5U) << "it never ran";
  for (int round = 0; round < 10; ++round) {
    ASSERT_TRUE(device->start());
    device->stop();
  }
  ASSERT_TRUE(device->start());
  for (std::size_t i = 0; i < 5; ++i) EXPECT_TRUE(wait_for(client.records[i]));
  EXPECT_TRUE(device->enqcmd(0, client.space, make(Opcode::drain, client.records[6])));
  EXPECT_TRUE(wait_for(client.records[6]));
}

TEST(DeviceThreads, WorkByTheClockToo) {
  TestClient client;
  const auto device = open_device({.rates = DeviceRates{}});
  ASSERT_TRUE(device->start());
  for (std::size_t i = 0; i < 20; ++i) {
    push(*device, 0, client.space,
         make_move(client.memory.address(), client.memory.address(8 * kPage), 6 * kPage,
                   client.records[i]));
  }
  for (std::size_t i = 0; i < 20; ++i) ASSERT_TRUE(wait_for(client.records[i]));
}

}  // namespace
}  // namespace headrace::emulator
