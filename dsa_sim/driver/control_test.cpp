// SPDX-License-Identifier: Apache-2.0
#include "dsa_sim/driver/control.h"

#include <gtest/gtest.h>

#include "dsa_sim/driver/driver_testing.h"

namespace headrace::emulator {
namespace {

TEST(Control, DisablesQueuesAndHaltsDevices) {
  const Bus bus = test::open_bus({QueueSetup{}, QueueSetup{}});
  const ServedDevice& device = *bus.devices()[0];
  EXPECT_TRUE(control(bus, "disable wq0.1\nhalt dsa0\n"));
  EXPECT_FALSE(device.configured(1));
  EXPECT_TRUE(device.configured(0));
  EXPECT_TRUE(device.device().halted());
  EXPECT_TRUE(control(bus, "enable wq0.1\n\nrecover dsa0"));
  EXPECT_TRUE(device.configured(1));
  EXPECT_FALSE(device.device().halted());
  EXPECT_TRUE(control(bus, ""));
}

TEST(Control, SetsChances) {
  Bus bus = test::open_bus({QueueSetup{}});
  EXPECT_TRUE(control(bus, "fail 1 dsa0\n"));
  test::Client client;
  const auto file = test::open_file(bus, client.memory());
  EXPECT_TRUE(file->write(test::bytes_of({client.copy(0)})));
  bus.devices()[0]->device().run();
  EXPECT_EQ(client.records[0].status, 0x20);
}

TEST(Control, SaysWhatIsWrong) {
  const Bus bus = test::open_bus({QueueSetup{}});
  EXPECT_EQ(control(bus, "disable wq9.9").error().code, ErrorCode::absent);
  EXPECT_EQ(control(bus, "halt wq0.0").error().code, ErrorCode::absent);
  for (const char* text : {"fail 2 dsa0", "fail x dsa0", "fail nan dsa0", "rain 0.5 dsa0", "halt",
                           "explode dsa0", "a b c d"}) {
    EXPECT_EQ(control(bus, text).error().code, ErrorCode::invalid) << text;
  }
  // What stands before is done.
  EXPECT_FALSE(control(bus, "disable wq0.0\nnonsense\n"));
  EXPECT_FALSE(bus.devices()[0]->configured(0));
}

TEST(Control, TellsWhatHappened) {
  Bus bus = test::open_bus({QueueSetup{}});
  test::Client client;
  const auto file = test::open_file(bus, client.memory());
  EXPECT_TRUE(file->write(test::bytes_of({client.copy(0), client.copy(1)})));
  EXPECT_EQ(status_text(bus),
            "dsa0 enabled accepted 2 retried 0 dropped 0 discarded 0 executed 0 failed 0 faults 0 "
            "abandoned 0 records-lost 0\n"
            "wq0.0 enabled clients 1 occupancy 2\n");
  bus.devices()[0]->device().run();
  EXPECT_NE(status_text(bus).find("executed 2"), std::string::npos);
}

}  // namespace
}  // namespace headrace::emulator
