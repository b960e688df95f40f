// SPDX-License-Identifier: Apache-2.0
#include "tests/support/dsa/execute/device_setup.h"

#include <gtest/gtest.h>

#include <functional>

namespace headrace::emulator {
namespace {

TEST(DeviceSetup, TheNamedOnesArePossible) {
  for (const char* name : {"sapphire_rapids", "dsa2", "dsa3"}) {
    const auto setup = find_setup(name);
    ASSERT_TRUE(setup) << name;
    EXPECT_TRUE(check(*setup)) << name;
  }
  EXPECT_EQ(find_setup("dsa4").error().code, ErrorCode::absent);
}

TEST(DeviceSetup, GenerationsAddToEachOther) {
  EXPECT_FALSE(sapphire_rapids().op_cap.has(Opcode::translation_fetch));
  EXPECT_TRUE(dsa2().op_cap.has(Opcode::translation_fetch));
  EXPECT_FALSE(sapphire_rapids().gen_cap.crc64());
  EXPECT_TRUE(dsa2().gen_cap.fill16() && dsa2().gen_cap.batch_continuation());
  EXPECT_FALSE(dsa2().gen_cap.batch_of_one());
  EXPECT_TRUE(dsa3().gen_cap.batch_of_one());
  EXPECT_EQ(dsa3().gen_cap.max_batch(), 1024U);
}

// Each impossible in one way, with a message that says where.
TEST(DeviceSetup, ImpossibleOnesAreRefused) {
  const struct {
    std::function<void(DeviceSetup&)> spoil;
    std::string says;
  } cases[] = {
      {[](auto& s) { s.groups.clear(); }, "0 groups"},
      {[](auto& s) { s.groups.resize(5); }, "5 groups"},
      {[](auto& s) { s.queues.clear(); }, "0 queues"},
      {[](auto& s) { s.queues.resize(9); }, "9 queues"},
      {[](auto& s) { s.groups[0].engines = 5; }, "5 engines"},
      {[](auto& s) { s.groups[0].engines = 0; }, "no engine"},
      {[](auto& s) { s.queues[0].size = 0; }, "has size 0"},
      {[](auto& s) { s.queues[0].size = 129; }, "at most 128"},
      {[](auto& s) { s.queues[0].threshold = 129; }, "threshold 129"},
      {[](auto& s) { s.queues[0].threshold = 0; }, "threshold 0"},
      {[](auto& s) { s.queues[0].group = 1; }, "group 1"},
      {[](auto& s) { s.queues[0].priority = 16; }, "priority 16"},
      {[](auto& s) { s.queues[0].max_transfer = 0; }, "max_transfer"},
      {[](auto& s) { s.queues[0].max_transfer = std::uint64_t{1} << 32; }, "max_transfer"},
      {[](auto& s) { s.queues[0].max_batch = 2000; }, "max_batch 2000"},
      {[](auto& s) { s.gen_cap.bits &= ~std::uint64_t{1}; }, "block on faults"},
      {[](auto& s) { s.queues[0].op_config = dsa2().op_cap; }, "op_config"},
  };
  for (const auto& each : cases) {
    DeviceSetup setup = sapphire_rapids();
    each.spoil(setup);
    const Status status = check(setup);
    ASSERT_FALSE(status) << each.says;
    EXPECT_EQ(status.error().code, ErrorCode::invalid);
    EXPECT_NE(status.error().message.find(each.says), std::string::npos) << status.error().message;
  }
}

TEST(DeviceSetup, ADedicatedQueueHasNoThreshold) {
  DeviceSetup setup = sapphire_rapids();
  setup.queues = {QueueSetup{.shared = false, .size = 4, .threshold = 99}};
  EXPECT_TRUE(check(setup));
}

}  // namespace
}  // namespace headrace::emulator
