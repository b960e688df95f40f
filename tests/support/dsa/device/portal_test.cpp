// SPDX-License-Identifier: Apache-2.0
#include "tests/support/dsa/device/portal.h"

#include "tests/support/dsa/device/device_testing.h"

namespace headrace::emulator {
namespace {

using namespace test;

class DevicePortalTest : public testing::Test {
 protected:
  DevicePortalTest() {
    DeviceSetup setup = sapphire_rapids();
    setup.queues = {QueueSetup{.size = 4, .threshold = 3}, QueueSetup{.shared = false, .size = 2},
                    QueueSetup{.batches_allowed = false}};
    device_ = open_device({.setup = setup});
    for (Descriptor& noop : noops_) noop = make(Opcode::noop, client_.records[0]);
  }
  std::unique_ptr<Portal> portal(std::size_t queue, bool character_device = false) {
    return open_portal(*device_, queue, client_.space, {.character_device = character_device});
  }

  TestClient client_;
  std::unique_ptr<Device> device_;
  std::array<Descriptor, 5> noops_;
};

TEST_F(DevicePortalTest, ASharedQueueTakesWhatFits) {
  const auto shared = portal(0);
  EXPECT_EQ(shared->submit(noops_).value_or(99), 3U);
  EXPECT_EQ(shared->submit(noops_).value_or(99), 0U);
  EXPECT_EQ(shared->submit({}).value_or(99), 0U);
  device_->run();
  EXPECT_EQ(shared->submit(noops_).value_or(99), 3U);
  device_->disable(0);
  EXPECT_EQ(shared->submit(noops_).error().code, ErrorCode::absent);
  EXPECT_TRUE(shared->takes_batches());
  EXPECT_EQ(shared->name(), "emulator");
}

TEST_F(DevicePortalTest, ADedicatedQueueSeemsToTakeAll) {
  const auto dedicated = portal(1);
  EXPECT_EQ(dedicated->submit(noops_).value_or(99), 5U);
  EXPECT_EQ(device_->stats().dropped, 3U);
  device_->disable(1);
  EXPECT_EQ(dedicated->submit(noops_).value_or(99), 5U);
  EXPECT_EQ(device_->stats().discarded, 5U);
}

// idxd cdev.c: EINVAL for a batch and for a misaligned record, whatever was accepted before.
TEST_F(DevicePortalTest, ACharacterDeviceTakesNoBatches) {
  const auto device = portal(0, true);
  EXPECT_FALSE(device->takes_batches());
  EXPECT_FALSE(portal(2)->takes_batches());
  EXPECT_EQ(device->submit(noops_).value_or(99), 3U) << "several at once";
  device_->run();
  noops_[1].set(Opcode::batch, kRecord);
  EXPECT_EQ(device->submit(noops_).value_or(99), 1U);
  EXPECT_EQ(device->submit(std::span(noops_).subspan(1)).error().code, ErrorCode::invalid);
  noops_[2].record += 8;
  EXPECT_EQ(device->submit(std::span(noops_).subspan(2)).error().code, ErrorCode::invalid);
}

}  // namespace
}  // namespace headrace::emulator
