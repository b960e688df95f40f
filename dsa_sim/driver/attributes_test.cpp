// SPDX-License-Identifier: Apache-2.0
#include "dsa_sim/driver/attributes.h"

#include <fmt/core.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "dsa_sim/driver/driver_testing.h"

namespace headrace::emulator {
namespace {

const Attribute* find(const std::vector<Attribute>& attributes, std::string_view name) {
  const auto found = std::ranges::find(attributes, name, &Attribute::name);
  return found == attributes.end() ? nullptr : &*found;
}

// Its text; "E" and the number of its error; "-" where there is no such file.
std::string show(const std::vector<Attribute>& attributes, std::string_view name) {
  const Attribute* attribute = find(attributes, name);
  if (attribute == nullptr) return "-";
  const Answer<std::string> text = attribute->show();
  return text ? *text : fmt::format("E{}", static_cast<int>(text.error()));
}

std::string E(int error) { return fmt::format("E{}", error); }

TEST(Attributes, OfADeviceAsTheKernelPrintsThem) {
  const Bus bus = test::open_bus({QueueSetup{}});
  const auto of = device_attributes(*bus.devices()[0]);
  EXPECT_EQ(show(of, "version"), "0x100\n");
  EXPECT_EQ(show(of, "gen_cap"), "0x40915f0107\n");
  EXPECT_EQ(show(of, "max_transfer_size"), "2147483648\n");
  EXPECT_EQ(show(of, "max_batch_size"), "1024\n");
  EXPECT_EQ(show(of, "max_work_queues_size"), "128\n");
  EXPECT_EQ(show(of, "configurable"), "1\n");
  EXPECT_EQ(show(of, "pasid_enabled"), "1\n");
  EXPECT_EQ(show(of, "state"), "enabled\n");
  EXPECT_EQ(show(of, "cmd_status"), "0x0\n");
  EXPECT_EQ(show(of, "clients"), "0\n");
  EXPECT_EQ(show(of, "event_log_size"), "-");
  bus.devices()[0]->device().halt();
  EXPECT_EQ(show(of, "state"), "halted\n");
}

TEST(Attributes, OperationsAreEightWordsWithoutBatchesOfVersion1) {
  const std::string zeros = "00000000,00000000,00000000,00000000,00000000,00000000,";
  const Bus first = test::open_bus({QueueSetup{}});
  EXPECT_EQ(show(device_attributes(*first.devices()[0]), "op_cap"), zeros + "00000001,000303fd\n");
  const Bus second = test::open_bus({QueueSetup{}}, dsa2());
  const auto of_device = device_attributes(*second.devices()[0]);
  EXPECT_EQ(show(of_device, "op_cap"), zeros + "00000001,000307ff\n");
  const auto of_queue = queue_attributes(second, *second.devices()[0], 0);
  EXPECT_EQ(show(of_queue, "op_config"), zeros + "00000001,000307ff\n");
}

TEST(Attributes, OpConfigIsTheQueuesOwn) {
  Opcodes only;
  only.set(Opcode::memmove);
  const Bus bus = test::open_bus({QueueSetup{.op_config = only}}, dsa2());
  EXPECT_TRUE(show(queue_attributes(bus, *bus.devices()[0], 0), "op_config")
                  .ends_with(",00000000,00000008\n"));
}

TEST(Attributes, OfQueues) {
  const Bus bus = test::open_bus({QueueSetup{.size = 32, .threshold = 24},
                                  QueueSetup{.shared = false, .size = 16, .priority = 3}});
  ServedDevice& device = *bus.devices()[0];
  const auto shared = queue_attributes(bus, device, 0);
  EXPECT_EQ(show(shared, "mode"), "shared\n");
  EXPECT_EQ(show(shared, "size"), "32\n");
  EXPECT_EQ(show(shared, "threshold"), "24\n");
  EXPECT_EQ(show(shared, "type"), "user\n");
  EXPECT_EQ(show(shared, "driver_name"), "user\n");
  EXPECT_EQ(show(shared, "block_on_fault"), "1\n");
  EXPECT_EQ(show(shared, "cdev_minor"), "0\n");
  EXPECT_EQ(show(shared, "enqcmds_retries"), "32\n");
  // Hidden where the device has none of it.
  for (const char* name : {"op_config", "ats_disable", "prs_disable"}) {
    EXPECT_EQ(show(shared, name), "-") << name;
  }
  const auto dedicated = queue_attributes(bus, device, 1);
  EXPECT_EQ(show(dedicated, "mode"), "dedicated\n");
  EXPECT_EQ(show(dedicated, "threshold"), "0\n");
  EXPECT_EQ(show(dedicated, "priority"), "3\n");
  EXPECT_EQ(show(dedicated, "enqcmds_retries"), E(EOPNOTSUPP));
  EXPECT_EQ(show(dedicated, "cdev_minor"), "1\n");
}

TEST(Attributes, OfAQueueThatIsNotConfigured) {
  const Bus bus = test::open_bus({QueueSetup{}, QueueSetup{.size = 20, .threshold = 20}});
  ServedDevice& device = *bus.devices()[0];
  device.disable(1);
  for (const std::size_t queue : {1U, 5U}) {
    const auto of = queue_attributes(bus, device, queue);
    EXPECT_EQ(show(of, "state"), "disabled\n");
    EXPECT_EQ(show(of, "type"), "none\n");
    EXPECT_EQ(show(of, "name"), "\n");
    EXPECT_EQ(show(of, "threshold"), "0\n");
    EXPECT_EQ(show(of, "max_transfer_size"), "2097152\n");
    EXPECT_EQ(show(of, "max_batch_size"), "32\n");
    EXPECT_EQ(show(of, "cdev_minor"), E(ENXIO));
  }
  EXPECT_EQ(show(queue_attributes(bus, device, 1), "size"), "20\n");
  EXPECT_EQ(show(queue_attributes(bus, device, 5), "size"), "0\n");
  EXPECT_EQ(show(queue_attributes(bus, device, 5), "group_id"), "-1\n");
  device.enable(1);
  EXPECT_EQ(show(queue_attributes(bus, device, 1), "threshold"), "20\n");
}

TEST(Attributes, AreAlive) {
  Bus bus = test::open_bus({QueueSetup{}});
  const auto of = queue_attributes(bus, *bus.devices()[0], 0);
  test::Client client;
  const auto file = test::open_file(bus, client.memory());
  EXPECT_TRUE(file->write(test::bytes_of({client.copy(0), client.copy(1)})));
  EXPECT_EQ(show(of, "clients"), "1\n");
  EXPECT_EQ(show(of, "occupancy"), "2\n");
}

TEST(Attributes, ErrorsShowADroppedDescriptor) {
  Bus bus = test::open_bus({QueueSetup{.shared = false, .size = 1}});
  const auto of = device_attributes(*bus.devices()[0]);
  EXPECT_TRUE(show(of, "errors").ends_with(",00000000,00000000\n"));
  test::Client client;
  const auto file = test::open_file(bus, client.memory());
  EXPECT_TRUE(file->write(test::bytes_of({client.copy(0), client.copy(1)})));
  EXPECT_TRUE(show(of, "errors").ends_with(",00000000,00005301\n"));
}

TEST(Attributes, OnlyRetriesAreSetWhileEnabled) {
  const Bus bus = test::open_bus({QueueSetup{}, QueueSetup{.shared = false}});
  ServedDevice& device = *bus.devices()[0];
  const auto of = queue_attributes(bus, device, 0);
  EXPECT_EQ(find(of, "threshold")->store("3").error(), std::errc::operation_not_permitted);
  EXPECT_FALSE(find(of, "state")->store);
  EXPECT_EQ(find(of, "state")->mode, 0444U);
  const Attribute& retries = *find(of, "enqcmds_retries");
  EXPECT_TRUE(retries.store("10\n"));
  EXPECT_EQ(device.retries(0), 10U);
  EXPECT_TRUE(retries.store("1000"));
  EXPECT_EQ(show(of, "enqcmds_retries"), "64\n");
  EXPECT_EQ(retries.store("many").error(), std::errc::invalid_argument);
  EXPECT_EQ(retries.store("\n").error(), std::errc::invalid_argument);
  const auto dedicated = queue_attributes(bus, device, 1);
  EXPECT_EQ(find(dedicated, "enqcmds_retries")->store("1").error(),
            std::errc::operation_not_supported);
}

TEST(Attributes, OfGroupsAndEngines) {
  DeviceSetup setup = sapphire_rapids();
  setup.groups = {GroupSetup{.engines = 1}, GroupSetup{.engines = 2}};
  const Bus bus = test::open_bus({QueueSetup{.group = 1}, QueueSetup{.group = 1}}, setup);
  ServedDevice& device = *bus.devices()[0];
  EXPECT_EQ(show(group_attributes(device, 0), "work_queues"), "");
  EXPECT_EQ(show(group_attributes(device, 0), "engines"), "engine0.0\n");
  EXPECT_EQ(show(group_attributes(device, 1), "work_queues"), "wq0.0 wq0.1\n");
  EXPECT_EQ(show(group_attributes(device, 1), "engines"), "engine0.1 engine0.2\n");
  EXPECT_EQ(show(group_attributes(device, 3), "engines"), "");
  EXPECT_EQ(show(group_attributes(device, 1), "traffic_class_a"), "1\n");
  EXPECT_EQ(show(engine_attributes(device, 2), "group_id"), "1\n");
  EXPECT_EQ(show(engine_attributes(device, 3), "group_id"), "-1\n");
}

TEST(Attributes, Version3HasNoTrafficClassOfItsOwn) {
  const Bus bus = test::open_bus({QueueSetup{}}, dsa3());
  EXPECT_EQ(show(group_attributes(*bus.devices()[0], 0), "traffic_class_b"), "-1\n");
}

TEST(Attributes, MinorNumbersGoOnOverDevices) {
  DeviceSetup setup = sapphire_rapids();
  setup.queues = {QueueSetup{}, QueueSetup{}};
  auto bus = Bus::open({setup, setup});
  ASSERT_TRUE(bus);
  EXPECT_EQ(minor_of(*bus, *bus->devices()[1], 1), 3U);
}

}  // namespace
}  // namespace headrace::emulator
