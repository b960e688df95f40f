// SPDX-License-Identifier: Apache-2.0
#include "tests/support/dsa/device/device.h"

#include "tests/support/dsa/device/device_testing.h"

namespace headrace::emulator {
namespace {

using namespace test;

class DeviceSteps : public DeviceTest {};

TEST_F(DeviceSteps, CopiesAndSaysSo) {
  randomise();
  const auto before = copy_of(0, 5000);
  const Record record = execute(make_move(at(0), at(20000), 5000, client_.records[0]));
  EXPECT_EQ(record.code(), Code::success);
  EXPECT_EQ(record.completed, 0U);
  EXPECT_TRUE(same(20000, before));
  EXPECT_EQ(device_->stats().executed.at(Opcode::memmove), 1U);
  EXPECT_EQ(device_->stats().records_written, 1U);
  EXPECT_TRUE(device_->idle());
}

TEST_F(DeviceSteps, NothingHappensBeforeAStep) {
  const Descriptor noop = make(Opcode::noop, client_.records[0]);
  EXPECT_TRUE(device_->enqcmd(0, client_.space, noop));
  EXPECT_EQ(device_->occupancy(0), 1U);
  EXPECT_FALSE(device_->idle());
  EXPECT_TRUE(device_->step()) << "an engine takes it";
  EXPECT_EQ(device_->occupancy(0), 0U);
  EXPECT_EQ(client_.records[0].status, 0);
  EXPECT_TRUE(device_->step());
  EXPECT_EQ(client_.records[0].code(), Code::success);
  EXPECT_FALSE(device_->step());
}

// SPEC 5.3, 5.7: retry at the threshold, in a disabled queue, and of a halted device.
TEST_F(DeviceSteps, EnqcmdSaysRetry) {
  DeviceSetup setup = sapphire_rapids();
  setup.queues = {QueueSetup{.size = 8, .threshold = 2}, QueueSetup{.shared = false, .size = 2}};
  use({.setup = setup});
  const Descriptor noop = make(Opcode::noop, client_.records[0]);
  EXPECT_TRUE(device_->enqcmd(0, client_.space, noop));
  EXPECT_TRUE(device_->enqcmd(0, client_.space, noop));
  EXPECT_FALSE(device_->enqcmd(0, client_.space, noop));
  EXPECT_FALSE(device_->enqcmd(1, client_.space, noop)) << "dedicated";
  device_->run();
  EXPECT_TRUE(device_->enqcmd(0, client_.space, noop));
  device_->disable(0);
  EXPECT_FALSE(device_->enqcmd(0, client_.space, noop));
  device_->enable(0);
  device_->halt();
  EXPECT_FALSE(device_->enqcmd(0, client_.space, noop));
  EXPECT_FALSE(device_->enabled(0));
  device_->recover();
  EXPECT_TRUE(device_->enqcmd(0, client_.space, noop));
  EXPECT_EQ(device_->stats().retried, 4U);
  EXPECT_EQ(device_->stats().executed[Opcode::noop], 3U) << "the disabled queue was drained";
}

TEST_F(DeviceSteps, Movdir64bSaysNothing) {
  DeviceSetup setup = sapphire_rapids();
  setup.queues = {QueueSetup{.shared = false, .size = 2}, QueueSetup{}};
  use({.setup = setup});
  const Descriptor noop = make(Opcode::noop, client_.records[0]);
  for (int i = 0; i < 5; ++i) device_->movdir64b(0, client_.space, noop);
  device_->movdir64b(1, client_.space, noop);
  device_->disable(0);
  device_->movdir64b(0, client_.space, noop);
  DeviceStats stats = device_->stats();
  EXPECT_EQ(stats.accepted, 2U);
  EXPECT_EQ(stats.dropped, 3U) << "the queue was full: SWERROR 0x53";
  EXPECT_EQ(stats.discarded, 2U) << "shared, disabled";
  EXPECT_EQ(stats.executed[Opcode::noop], 2U) << "drained";
}

TEST_F(DeviceSteps, DropsDescriptorsAtRandom) {
  DeviceSetup setup = sapphire_rapids();
  setup.queues = {QueueSetup{.shared = false, .size = 100}};
  use({.setup = setup, .faults = {.drop_chance = 0.5}});
  for (int i = 0; i < 100; ++i) {
    device_->movdir64b(0, client_.space, make(Opcode::noop, client_.records[0]));
  }
  const DeviceStats stats = device_->stats();
  EXPECT_EQ(stats.accepted + stats.dropped, 100U);
  EXPECT_GT(stats.accepted, 20U);
  EXPECT_GT(stats.dropped, 20U);
}

// Every operation that a client asks for is accounted for.
TEST_F(DeviceSteps, CountsWhatItDid) {
  use({.seed = 3,
       .faults = {.page_fault_chance = 0.2, .hardware_chance = 0.1, .lost_record_chance = 0.1}});
  for (int i = 0; i < 100; ++i) {
    execute(make_move(at(0), at(8 * kPage), 3 * kPage, client_.records[0],
                      i % 2 == 0 ? kRecord : flag::record_valid));
  }
  DeviceStats stats = device_->stats();
  EXPECT_EQ(stats.executed[Opcode::memmove], 100U);
  EXPECT_EQ(stats.records_written + stats.records_suppressed + stats.records_lost, 100U);
  EXPECT_GT(stats.faults, 5U);
  EXPECT_GT(stats.failed, stats.faults);
  EXPECT_LT(stats.failed, 60U);
  EXPECT_GT(stats.records_lost, 0U);
  EXPECT_GT(stats.records_suppressed, 10U);
}

TEST_F(DeviceSteps, AnImpossibleSetUpDoesNotOpen) {
  DeviceSetup setup = sapphire_rapids();
  setup.queues.clear();
  EXPECT_EQ(Device::open({.setup = setup}).error().code, ErrorCode::invalid);
}

}  // namespace
}  // namespace headrace::emulator
