// SPDX-License-Identifier: Apache-2.0
#include "tests/support/dsa/device/device_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "tests/support/dsa/device/device_testing.h"

namespace headrace::emulator {
namespace {

using namespace test;

std::vector<DeviceOptions> two_devices() {
  DeviceOptions first;
  first.setup.queues = {{.size = 16, .threshold = 8}, {.shared = false, .size = 4, .threshold = 0}};
  DeviceOptions second;
  second.setup.queues = {{.batches_allowed = false}};
  second.setup.numa_node = 3;
  return {first, second};
}

TEST(DeviceSet, ShowsItsDevicesAsSysfsWould) {
  const auto devices = DeviceSet::start(two_devices()).value();
  ASSERT_EQ(devices->devices().size(), 2U);
  const auto& first = devices->devices()[0];
  EXPECT_EQ(first.name, "dsa0");
  EXPECT_TRUE(first.unusable.empty());
  EXPECT_TRUE(first.shared_memory);
  ASSERT_EQ(first.queues.size(), 2U);
  EXPECT_EQ(first.queues[0].name, "wq0.0");
  EXPECT_EQ(first.queues[0].file, "/dev/dsa/wq0.0");
  EXPECT_EQ(first.queues[0].credits(), 8U);
  EXPECT_EQ(first.queues[1].credits(), 4U);
  EXPECT_TRUE(first.queues[0].operations.has(Opcode::batch));
  const auto& second = devices->devices()[1];
  EXPECT_EQ(second.name, "dsa1");
  EXPECT_EQ(second.node, 3U);
  EXPECT_EQ(second.queues.at(0).name, "wq1.0");
  EXPECT_FALSE(second.queues[0].operations.has(Opcode::batch)) << "as the kernel clears the bit";
}

TEST(DeviceSet, AnImpossibleSetupIsRefused) {
  DeviceOptions options;
  options.setup.queues = {{.group = 9}};
  const auto refused = DeviceSet::start({options});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::invalid);
}

TEST(DeviceSet, ItsQueuesAreFoundByName) {
  const auto devices = DeviceSet::start(two_devices()).value();
  const OpenPortal open = devices->opener();
  EXPECT_EQ(open({.name = "wq7.0"}).error().code, ErrorCode::absent);
  EXPECT_TRUE(open(devices->devices()[1].queues[0]));
  devices->device(1).disable(0);
  EXPECT_EQ(open(devices->devices()[1].queues[0]).error().code, ErrorCode::absent);
  EXPECT_TRUE(open(devices->devices()[0].queues[0])) << "the others go on";
}

// It reads and writes this process's own memory, by threads of its own.
TEST(DeviceSet, ADescriptorMovesOurBytes) {
  const auto devices = DeviceSet::start(two_devices()).value();
  const auto portal = devices->opener()(devices->devices()[0].queues[0]).value();
  Pages pages(2);
  for (std::size_t i = 0; i < kPage; ++i) pages[i] = static_cast<std::byte>(i);
  Record record;
  const Descriptor move = make_move(pages.address(), pages.address(kPage), kPage, record);
  ASSERT_EQ(portal->submit({&move, 1}).value_or(0), 1U);
  while (status_of(record) == 0) std::this_thread::yield();
  EXPECT_EQ(record.code(), Code::success);
  EXPECT_TRUE(std::ranges::equal(pages.at(0, kPage), pages.at(kPage, kPage)));
}

// Closing a portal ends what is in flight in it: no record comes afterwards.
TEST(DeviceSet, AClosedPortalWritesNothingMore) {
  DeviceOptions slow;
  slow.rates = DeviceRates{.start_up = std::chrono::hours{1}};
  const auto devices = DeviceSet::start({slow}).value();
  auto portal = devices->opener()(devices->devices()[0].queues[0]).value();
  Pages pages(2);
  Record record;
  const Descriptor move = make_move(pages.address(), pages.address(kPage), 64, record);
  ASSERT_EQ(portal->submit({&move, 1}).value_or(0), 1U);
  portal.reset();
  EXPECT_TRUE(devices->device(0).idle() || status_of(record) == 0);
  EXPECT_EQ(status_of(record), 0);
}

TEST(DeviceSet, AsACharacterDeviceItTakesNoBatches) {
  const auto devices = DeviceSet::start(two_devices(), {.character_device = true}).value();
  const auto portal = devices->opener()(devices->devices()[0].queues[0]).value();
  EXPECT_FALSE(portal->takes_batches());
}

TEST(FactsOf, AreBelowTheGivenDirectory) {
  DeviceSetup setup = sapphire_rapids();
  setup.name = "dsa12";
  const auto device = facts_of(setup, "/tmp/dev");
  EXPECT_EQ(device.queues.at(0).name, "wq12.0");
  EXPECT_EQ(device.queues[0].file, "/tmp/dev/wq12.0");
  EXPECT_EQ(device.engines, 1U);
  EXPECT_EQ(device.version, 0x100U);
}

}  // namespace
}  // namespace headrace::emulator
