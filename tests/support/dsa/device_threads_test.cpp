// SPDX-License-Identifier: Apache-2.0
// The device with its own threads, and several that submit. For the sanitizers: nothing here
// depends on how long anything takes.
#include <chrono>
#include <thread>

#include "tests/support/dsa/testing.h"

namespace headrace::emulator {
namespace {

using namespace test;

// Only a broken device lets it pass.
constexpr auto kPatience = std::chrono::seconds{60};

template <class Done>
bool eventually(Done done) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

std::unique_ptr<Device> open_busy(std::optional<DeviceRates> rates = {}) {
  DeviceSetup setup = dsa2();
  setup.engines = 3;
  setup.queues = {{.size = 16, .threshold = 8}, {.size = 16}};
  return Device::open({.setup = setup, .rates = std::move(rates)}).value();
}

// Copies pages, alone and in batches, and sees after each record that the bytes are there.
void copy_around(Device& device, std::uint64_t seed, int rounds) {
  Client client;
  Random random(seed);
  for (int round = 0; round < rounds; ++round) {
    client.records = {};
    const std::size_t count = 2 + random.below(3);
    for (std::size_t i = 0; i < count; ++i) {
      client.memory[i * kPage] = static_cast<std::byte>(random());
      const auto size = static_cast<std::uint32_t>(1 + random.below(kPage));
      client.list[i] = client.move(i * kPage, (8 + i) * kPage, size, i);
    }
    const auto all = std::span<const Descriptor>(client.list).first(count);
    const Descriptor batch = make_batch(all, client.records[10]);
    const bool as_batch = random.chance(0.5);
    for (const Descriptor& each : as_batch ? std::span(&batch, 1) : all) {
      ASSERT_TRUE(eventually([&] { return device.enqcmd(round % 2, client.space, each); }));
    }
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_TRUE(eventually([&] { return status_of(client.records[i]) != 0; }));
      ASSERT_EQ(client.records[i].status, 1);
      ASSERT_EQ(client.memory[(8 + i) * kPage], client.memory[i * kPage]);
    }
    ASSERT_TRUE(eventually([&] { return status_of(client.records[10]) == (as_batch ? 1 : 0); }));
  }
  device.forget(client.space);
}

TEST(DeviceThreads, ManyClientsOneDevice) {
  for (const bool timed : {false, true}) {
    const auto device = open_busy(timed ? std::optional(DeviceRates{}) : std::nullopt);
    ASSERT_TRUE(device->start());
    ASSERT_TRUE(device->start()) << "again: nothing more";
    std::vector<std::thread> clients;
    for (std::uint64_t i = 0; i < 4; ++i) {
      clients.emplace_back([&, i] { copy_around(*device, i, timed ? 10 : 50); });
    }
    for (std::thread& client : clients) client.join();
    device->stop();
    EXPECT_TRUE(device->idle());
    EXPECT_EQ(device->stats().failed, 0U);
  }
}

// Clients come and go while queues are disabled and the device halts. A client that was abandoned
// goes away at once, and nothing is written for it any more.
TEST(DeviceThreads, AbandonedClients_AreNotTouchedAgain) {
  const auto device = open_busy();
  ASSERT_TRUE(device->start());
  std::atomic<int> left = 3;
  std::vector<std::thread> clients;
  for (std::uint64_t i = 0; i < 3; ++i) {
    clients.emplace_back([&, i] {
      Random random(i);
      for (int round = 0; round < 100; ++round) {
        const auto client = std::make_unique<Client>();
        for (std::size_t n = 0; n < 8; ++n) {
          client->list[n] = client->move(0, (1 + n) * kPage, kPage, n + 1);
        }
        for (std::size_t n = 0; n < 4; ++n) {
          const auto batch = std::span<const Descriptor>(client->list).first(8);
          device->enqcmd(random.below(2), client->space,
                         n == 1 ? make_batch(batch, client->records[0])
                                : client->move(0, (10 + n) * kPage, kPage, 10 + n));
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
  EXPECT_EQ(device->stats().failed, 0U);
  EXPECT_TRUE(device->idle());
}

TEST(DeviceThreads, StoppedDevice_KeepsItsQueue) {
  Client client;
  const auto device = open_busy();
  for (std::size_t i = 0; i < 5; ++i) ASSERT_TRUE(device->enqcmd(0, client.space, client.noop(i)));
  device->stop();
  EXPECT_EQ(device->occupancy(0), 5U);
  ASSERT_TRUE(device->start());
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_TRUE(eventually([&] { return status_of(client.records[i]) != 0; }));
  }
}

}  // namespace
}  // namespace headrace::emulator
