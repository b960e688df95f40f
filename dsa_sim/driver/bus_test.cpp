// SPDX-License-Identifier: Apache-2.0
#include "dsa_sim/driver/bus.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>

#include "dsa_sim/driver/driver_testing.h"

namespace headrace::emulator {
namespace {

const std::vector<QueueSetup> kBoth = {QueueSetup{.shared = true}, QueueSetup{.shared = false}};

TEST(Bus, ManyHaveASharedQueueOpenAndOneADedicatedOne) {
  const Bus bus = test::open_bus(kBoth);
  ServedDevice& device = *bus.devices()[0];
  EXPECT_TRUE(device.claim(0));
  EXPECT_TRUE(device.claim(0));
  EXPECT_EQ(device.clients(0), 2);
  const Answer<std::uint64_t> first = device.claim(1);
  ASSERT_TRUE(first);
  EXPECT_EQ(device.claim(1).error(), std::errc::device_or_resource_busy);
  device.release(1, *first);
  EXPECT_TRUE(device.claim(1));
}

TEST(Bus, ADisabledQueueHasNoClientsAndGetsNone) {
  const Bus bus = test::open_bus(kBoth);
  ServedDevice& device = *bus.devices()[0];
  const Answer<std::uint64_t> old = device.claim(1);
  ASSERT_TRUE(old);
  device.disable(1);
  EXPECT_FALSE(device.configured(1));
  EXPECT_FALSE(device.device().enabled(1));
  EXPECT_EQ(device.claim(1).error(), std::errc::no_such_device_or_address);
  device.enable(1);
  const Answer<std::uint64_t> fresh = device.claim(1);
  ASSERT_TRUE(fresh);
  EXPECT_FALSE(device.is_current(1, *old));
  EXPECT_TRUE(device.is_current(1, *fresh));
  // The old file's close() is not the new one's.
  device.release(1, *old);
  EXPECT_EQ(device.clients(1), 1);
}

// Else what is submitted to the queue, enabled again, would be waited for too, and abandoned.
TEST(Bus, EnablingWaitsForADisablingThatIsUnderWay) {
  Bus bus = test::open_bus({QueueSetup{.shared = true}}, sapphire_rapids(),
                           {.rates = DeviceRates{.start_up = std::chrono::milliseconds{300}}});
  ASSERT_TRUE(bus.start());
  ServedDevice& device = *bus.devices()[0];
  test::Client client;
  const std::unique_ptr<AddressSpace> memory = client.memory();
  ASSERT_TRUE(device.device().enqcmd(0, *memory, client.copy(0)));
  std::thread disabling([&] { device.disable(0); });
  while (device.configured(0)) std::this_thread::yield();
  device.enable(0);
  EXPECT_EQ(client.records[0].status, 1) << "what the queue had accepted is over";
  EXPECT_TRUE(device.device().enqcmd(0, *memory, client.copy(1)));
  disabling.join();
  EXPECT_TRUE(device.configured(0) && device.device().enabled(0));
  EXPECT_TRUE(device.device().drain(*memory, std::chrono::seconds{30}));
  EXPECT_EQ(device.device().stats().abandoned, 0U);
  device.device().forget(*memory);
}

TEST(Bus, AHaltedDeviceLetsOpenOnlySharedQueues) {
  const Bus bus = test::open_bus(kBoth);
  ServedDevice& device = *bus.devices()[0];
  device.device().halt();
  EXPECT_TRUE(device.claim(0));
  EXPECT_EQ(device.claim(1).error(), std::errc::no_such_device_or_address);
  device.device().recover();
  EXPECT_TRUE(device.claim(1));
}

TEST(Bus, NamesOfDevicesAndQueues) {
  auto bus = Bus::open({sapphire_rapids(), dsa2()});
  ASSERT_TRUE(bus);
  EXPECT_EQ((*bus->find_device("dsa1"))->number(), 1U);
  EXPECT_EQ(bus->find_queue("wq1.0")->device->number(), 1U);
  EXPECT_EQ(bus->find_queue("wq1.1").error().code, ErrorCode::absent);
  EXPECT_EQ(bus->find_device("dsa2").error().message, "no device 'dsa2'; there are dsa0 to dsa1");
}

TEST(Bus, OnlyVersion1RefusesBatches) {
  auto bus = Bus::open({sapphire_rapids(), dsa2(), dsa3()});
  ASSERT_TRUE(bus);
  EXPECT_FALSE(bus->devices()[0]->takes_batches());
  EXPECT_TRUE(bus->devices()[1]->takes_batches());
  EXPECT_TRUE(bus->devices()[2]->takes_batches());
}

TEST(Bus, RetriesAreBounded) {
  const Bus bus = test::open_bus(kBoth);
  ServedDevice& device = *bus.devices()[0];
  EXPECT_EQ(device.retries(0), 32U);
  device.set_retries(0, 1000);
  EXPECT_EQ(device.retries(0), 64U);
}

TEST(Bus, AnImpossibleSetUpIsRefused) {
  DeviceSetup setup = sapphire_rapids();
  setup.queues.clear();
  EXPECT_EQ(Bus::open({setup}).error().code, ErrorCode::invalid);
}

}  // namespace
}  // namespace headrace::emulator
