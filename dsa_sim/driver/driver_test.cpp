// SPDX-License-Identifier: Apache-2.0
#include "dsa_sim/driver/driver.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <thread>

#include "tests/support/dsa/testing.h"

namespace headrace::emulator {
namespace {

using test::Client;

constexpr std::size_t kSize = sizeof(Descriptor);
constexpr auto kLong = std::chrono::seconds{30};
// Descriptors of this model wait until they are abandoned.
const DeviceRates kNever{.start_up = std::chrono::hours{1}};

std::vector<QueueSetup> both() {
  return {{.size = 8, .threshold = 8}, {.shared = false, .size = 8}};
}

Devices open_served(std::optional<DeviceRates> rates = {}, DeviceSetup setup = sapphire_rapids()) {
  setup.queues = both();
  for (QueueSetup& queue : setup.queues) queue.batches_allowed = setup.version > 0x100;
  return open_devices({setup}, 1, std::move(rates)).value();
}

std::unique_ptr<QueueFile> open_file(const Devices& devices, std::size_t queue = 0) {
  return QueueFile::open(*devices[0], queue, ProcessMemory::open(getpid()).value()).value();
}

std::span<const std::byte> bytes_of(const std::vector<Descriptor>& descriptors) {
  return std::as_bytes(std::span(descriptors));
}

TEST(ServedDevice, Queues_AreOpenedAsTheDriverOpensThem) {
  const Devices devices = open_served();
  ServedDevice& device = *devices[0];
  const auto error = [&](std::size_t queue) {
    const auto claimed = device.claim(queue);
    return claimed ? std::errc{} : claimed.error();
  };
  EXPECT_EQ(error(0), std::errc{});
  EXPECT_EQ(error(0), std::errc{});
  EXPECT_EQ(device.clients(0), 2);
  EXPECT_EQ(error(1), std::errc{});
  EXPECT_EQ(error(1), std::errc::device_or_resource_busy);
  device.release(1);
  device.device().halt();
  EXPECT_EQ(error(0), std::errc{});
  EXPECT_EQ(error(1), std::errc::no_such_device_or_address);
  device.device().recover();
  device.disable(1);
  EXPECT_FALSE(device.configured(1));
  EXPECT_EQ(error(1), std::errc::no_such_device_or_address);
  device.enable(1);
  EXPECT_EQ(error(1), std::errc{});
}

// Else work for the queue that was enabled again would be waited for, too, and abandoned.
TEST(ServedDevice, Enabling_WaitsForADisablingInProgress) {
  const Devices devices = open_served(DeviceRates{.start_up = std::chrono::milliseconds{300}});
  ServedDevice& device = *devices[0];
  Client client;
  ASSERT_TRUE(device.device().enqcmd(0, client.space, client.noop(0)));
  std::thread disabling([&] { device.disable(0); });
  while (device.configured(0)) std::this_thread::yield();
  device.enable(0);
  EXPECT_EQ(test::status_of(client.records[0]), 1);
  EXPECT_TRUE(device.device().enqcmd(0, client.space, client.noop(1)));
  disabling.join();
  EXPECT_TRUE(device.device().drain(client.space, kLong));
  EXPECT_EQ(device.device().stats().abandoned, 0U);
}

TEST(QueueFile, WithoutTimes_ACopyEndsBeforeItsWriteReturns) {
  const Devices devices = open_served();
  for (const std::size_t queue : {0U, 1U}) {
    Client client;
    const auto file = open_file(devices, queue);
    EXPECT_EQ(file->write(bytes_of({client.move(0, 8 * kPage, 9000)})), kSize);
    EXPECT_EQ(test::status_of(client.records[0]), 1);
    EXPECT_TRUE(std::ranges::equal(client.memory.all().first(9000),
                                   client.memory.all().subspan(8 * kPage, 9000)));
  }
}

TEST(QueueFile, Batches_AreTakenByVersion2Only) {
  Client client;
  client.list = {client.noop(1), client.noop(2)};
  const auto batch = test::make_batch(std::span(client.list).first(2), client.records[0]);
  EXPECT_EQ(open_file(open_served())->write(bytes_of({batch})).error(),
            std::errc::invalid_argument);
  const Devices devices = open_served({}, dsa2());
  EXPECT_EQ(open_file(devices)->write(bytes_of({batch})), kSize);
  EXPECT_EQ(test::status_of(client.records[0]), 1);
}

TEST(QueueFile, FullOrDisabledQueue_SharedSaysTryAgainAndDedicatedNothing) {
  const Devices devices = open_served(kNever);
  Client client;
  const auto shared = open_file(devices, 0);
  const auto dedicated = open_file(devices, 1);
  const std::vector<Descriptor> many(20, client.noop(0));
  // One of them is with the engine.
  EXPECT_LE(*shared->write(bytes_of(many)), 9 * kSize);
  EXPECT_EQ(dedicated->write(bytes_of(many)), 20 * kSize);
  EXPECT_GE(devices[0]->device().stats().dropped, 11U);
  EXPECT_FALSE(shared->drain(std::chrono::milliseconds{10}));
  devices[0]->device().halt();
  EXPECT_TRUE(shared->drain(kLong));
  const auto again = std::errc::resource_unavailable_try_again;
  EXPECT_EQ(shared->write(bytes_of(many)).error(), again);
  devices[0]->device().recover();
  devices[0]->disable(0);
  EXPECT_EQ(shared->write(bytes_of(many)).error(), again);
}

TEST(QueueFile, Closing_AbandonsItsOwnDescriptorsOnly) {
  const Devices devices = open_served(kNever);
  Client client;
  auto first = open_file(devices);
  const auto second = open_file(devices);
  EXPECT_TRUE(first->write(bytes_of({client.noop(0), client.noop(1)})));
  EXPECT_TRUE(second->write(bytes_of({client.noop(2)})));
  first.reset();
  EXPECT_EQ(devices[0]->clients(0), 1);
  EXPECT_EQ(devices[0]->device().stats().abandoned, 2U);
  EXPECT_FALSE(second->drain(std::chrono::milliseconds{10}));
}

// The kernel's loop, by counting.
struct Naive {
  std::size_t space = 8;

  int accept(const Descriptor& descriptor) {
    if (descriptor.opcode() == Opcode::batch || descriptor.record % 32 != 0) return EINVAL;
    if (space == 0) return EAGAIN;
    --space;
    return 0;
  }
  std::pair<std::size_t, int> write(const std::vector<Descriptor>& descriptors, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes / kSize; ++i) {
      const int error = accept(descriptors[i]);
      if (error != 0) return {i * kSize, i > 0 ? 0 : error};
    }
    return {bytes / kSize * kSize, 0};
  }
};

TEST(QueueFile, AnswersAsANaiveModelDoes) {
  rc::check([] {
    const Devices devices = open_served(kNever);
    devices[0]->device().stop();  // nothing leaves the queue
    Client client;
    const auto file = open_file(devices);
    Naive naive;
    const std::size_t writes = *rc::gen::inRange<std::size_t>(1, 20);
    for (std::size_t i = 0; i < writes; ++i) {
      std::vector<Descriptor> descriptors(*rc::gen::inRange<std::size_t>(0, 6));
      for (Descriptor& descriptor : descriptors) {
        descriptor = client.noop(0);
        const int kind = *rc::gen::inRange(0, 12);
        if (kind == 0) descriptor.set(Opcode::batch, 0);
        if (kind == 1) descriptor.record += *rc::gen::inRange<std::uint64_t>(1, 32);
        if (kind == 2) descriptor.set(Opcode::noop, 0);
      }
      const std::size_t all = descriptors.size() * kSize;
      const std::size_t bytes = all - std::min(*rc::gen::inRange<std::size_t>(0, kSize), all);
      const auto [done, error] = naive.write(descriptors, bytes);
      const auto answer = file->write(bytes_of(descriptors).first(bytes));
      const int refused = answer ? 0 : static_cast<int>(answer.error());
      RC_ASSERT(refused == error);
      RC_ASSERT(answer.value_or(0) == done);
      if (*rc::gen::inRange(0, 4) == 0) {
        devices[0]->device().halt();  // empties the queue
        devices[0]->device().recover();
        naive.space = 8;
      }
    }
  });
}

TEST(Control, Commands_AreExecutedUpToTheFirstMistake) {
  const Devices devices = open_devices({sapphire_rapids(), dsa2()}, 1).value();
  EXPECT_TRUE(control(devices, "halt dsa0\n\n disable  wq1.0\n"));
  EXPECT_TRUE(devices[0]->device().halted());
  EXPECT_FALSE(devices[1]->configured(0));
  EXPECT_EQ(status_text(devices),
            "dsa0 halted accepted 0 retried 0 dropped 0 discarded 0 executed 0 batches 0 failed 0 "
            "faults 0 abandoned 0 records-lost 0\nwq0.0 enabled clients 0 occupancy 0\n"
            "dsa1 enabled accepted 0 retried 0 dropped 0 discarded 0 executed 0 batches 0 failed 0 "
            "faults 0 abandoned 0 records-lost 0\nwq1.0 disabled clients 0 occupancy 0\n");
  EXPECT_TRUE(control(devices, "recover dsa0\nenable wq1.0"));
  EXPECT_TRUE(devices[0]->device().enabled(0) && devices[1]->device().enabled(0));
  for (const auto& [text, code] :
       std::vector<std::pair<std::string, ErrorCode>>{{"halt dsa2", ErrorCode::absent},
                                                      {"disable wq0.1", ErrorCode::absent},
                                                      {"fail 0.5 wq0.0", ErrorCode::absent},
                                                      {"explode", ErrorCode::invalid},
                                                      {"halt", ErrorCode::invalid},
                                                      {"fail 1.5 dsa0", ErrorCode::invalid},
                                                      {"fail x dsa0", ErrorCode::invalid},
                                                      {"fail nan dsa0", ErrorCode::invalid},
                                                      {"sink 0.5 dsa0", ErrorCode::invalid}}) {
    const Status done = control(devices, text + "\nhalt dsa0");
    EXPECT_EQ(done ? ErrorCode::io : done.error().code, code) << text;
  }
  EXPECT_FALSE(devices[0]->device().halted());
}

TEST(Control, Chances_HoldFromThenOn) {
  const Devices devices = open_served();
  Client client;
  const auto file = open_file(devices);
  const auto status_after = [&](const char* command) {
    client.records = {};
    EXPECT_TRUE(control(devices, command));
    EXPECT_EQ(file->write(bytes_of({client.move(0, kPage, 64)})), kSize);
    return test::status_of(client.records[0]);
  };
  EXPECT_EQ(status_after("fail 1 dsa0"), 0x20);
  EXPECT_EQ(status_after("fail 0 dsa0\nunknown-statuses 1 dsa0"), 0x3b);
  EXPECT_EQ(status_after("unknown-statuses 0 dsa0\nfault-pages 1 dsa0") & 0x7f, 0x03);
  EXPECT_EQ(status_after("fault-pages 0 dsa0\nlose-records 1 dsa0"), 0x00);
  EXPECT_EQ(status_after("lose-records 0 dsa0"), 0x01);
}

}  // namespace
}  // namespace headrace::emulator
