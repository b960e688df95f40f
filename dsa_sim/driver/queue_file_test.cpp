// SPDX-License-Identifier: Apache-2.0
#include "dsa_sim/driver/queue_file.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>

#include "dsa_sim/driver/driver_testing.h"

namespace headrace::emulator {
namespace {

using test::bytes_of;
using test::Client;
using test::open_bus;
using test::open_file;

constexpr std::size_t kSize = sizeof(Descriptor);

QueueSetup shared(unsigned size) { return {.size = size, .threshold = size}; }
QueueSetup dedicated(unsigned size) { return {.shared = false, .size = size}; }

Device& device_of(Bus& bus) { return bus.devices()[0]->device(); }

TEST(QueueFile, ExecutesWhatIsWritten) {
  Bus bus = open_bus({shared(16)});
  Client client;
  const auto file = open_file(bus, client.memory());
  EXPECT_EQ(file->write(bytes_of({client.copy(0)})), kSize);
  device_of(bus).run();
  EXPECT_EQ(client.records[0].status, 1);
  EXPECT_EQ(client.to, client.from);
}

// Programs probe a queue with a no-op and some microseconds of patience.
TEST(QueueFile, WithoutTimesACopyEndsBeforeItsWriteReturns) {
  for (const QueueSetup& setup : {shared(16), dedicated(16)}) {
    Bus bus = open_bus({setup}, sapphire_rapids(), {});
    Client client;
    const auto file = open_file(bus, client.memory());
    EXPECT_EQ(file->write(bytes_of({client.copy(0), client.copy(1)})), 2 * kSize);
    EXPECT_EQ(client.records[0].status, 1);
    EXPECT_EQ(client.records[1].status, 1);
    EXPECT_EQ(client.to, client.from);
  }
}

TEST(QueueFile, TakesWholeDescriptorsOnly) {
  Bus bus = open_bus({shared(16)});
  Client client;
  const auto file = open_file(bus, client.memory());
  const std::vector<Descriptor> three = {client.copy(0), client.copy(1), client.copy(2)};
  EXPECT_EQ(file->write({}), 0U);
  EXPECT_EQ(file->write(bytes_of(three).first(kSize - 1)), 0U);
  EXPECT_EQ(file->write(bytes_of(three).first(2 * kSize + 10)), 2 * kSize);
  EXPECT_EQ(device_of(bus).stats().accepted, 2U);
}

TEST(QueueFile, RefusesBatchesOfVersion1Only) {
  Client client;
  Descriptor batch = client.copy(0);
  batch.set(Opcode::batch, flag::record_valid | flag::request_record);
  for (const DeviceSetup& setup : {sapphire_rapids(), dsa2()}) {
    Bus bus = open_bus({shared(16)}, setup);
    const auto file = open_file(bus, client.memory());
    const Answer<std::size_t> answer = file->write(bytes_of({batch}));
    const Answer<std::size_t> refused = refuse(std::errc::invalid_argument);
    EXPECT_TRUE(answer == (setup.version > 0x100 ? Answer<std::size_t>(kSize) : refused));
  }
}

TEST(QueueFile, RefusesMisalignedRecordsEvenWhereThereIsNone) {
  Bus bus = open_bus({shared(16)});
  Client client;
  const auto file = open_file(bus, client.memory());
  Descriptor odd = client.copy(1);
  odd.record += 8;
  EXPECT_EQ(file->write(bytes_of({odd})).error(), std::errc::invalid_argument);
  odd.set(Opcode::memmove, 0);
  EXPECT_EQ(file->write(bytes_of({odd})).error(), std::errc::invalid_argument);
  EXPECT_EQ(file->write(bytes_of({client.copy(0), odd, client.copy(2)})), kSize);
}

TEST(QueueFile, AFullSharedQueueTakesAPartThenNothing) {
  Bus bus = open_bus({shared(2)});
  Client client;
  const auto file = open_file(bus, client.memory());
  const std::vector<Descriptor> three = {client.copy(0), client.copy(1), client.copy(2)};
  EXPECT_EQ(file->write(bytes_of(three)), 2 * kSize);
  EXPECT_EQ(device_of(bus).stats().retried, 33U);
  EXPECT_EQ(file->write(bytes_of({client.copy(2)})).error(),
            std::errc::resource_unavailable_try_again);
  bus.devices()[0]->set_retries(0, 0);
  EXPECT_FALSE(file->write(bytes_of({client.copy(2)})));
  EXPECT_EQ(device_of(bus).stats().retried, 67U);
  device_of(bus).run();
  EXPECT_EQ(file->write(bytes_of({client.copy(2)})), kSize);
}

TEST(QueueFile, AFullDedicatedQueueDropsWithoutAWord) {
  Bus bus = open_bus({dedicated(2)});
  Client client;
  const auto file = open_file(bus, client.memory());
  const std::vector<Descriptor> three = {client.copy(0), client.copy(1), client.copy(2)};
  EXPECT_EQ(bus.devices()[0]->error(), 0);
  EXPECT_EQ(file->write(bytes_of(three)), 3 * kSize);
  device_of(bus).run();
  EXPECT_EQ(client.records[1].status, 1);
  EXPECT_EQ(client.records[2].status, 0);
  EXPECT_EQ(bus.devices()[0]->error(), 0x53);
}

TEST(QueueFile, OfADisabledOrHaltedSharedQueueItSaysTryAgain) {
  Bus bus = open_bus({shared(16)});
  Client client;
  const auto file = open_file(bus, client.memory());
  bus.devices()[0]->disable(0);
  EXPECT_EQ(file->write(bytes_of({client.copy(0)})).error(),
            std::errc::resource_unavailable_try_again);
  bus.devices()[0]->enable(0);
  EXPECT_EQ(file->write(bytes_of({client.copy(0)})), kSize);
  device_of(bus).halt();
  EXPECT_FALSE(file->write(bytes_of({client.copy(1)})));
  device_of(bus).recover();
  EXPECT_TRUE(file->write(bytes_of({client.copy(2)})));
}

TEST(QueueFile, AfterItsDedicatedQueueWasDisabledAFileReachesNothing) {
  Bus bus = open_bus({dedicated(16)});
  Client client;
  const auto old = open_file(bus, client.memory());
  bus.devices()[0]->disable(0);
  bus.devices()[0]->enable(0);
  EXPECT_EQ(old->write(bytes_of({client.copy(0)})), kSize);
  device_of(bus).run();
  EXPECT_EQ(client.records[0].status, 0);
  const auto fresh = open_file(bus, client.memory());
  EXPECT_EQ(fresh->write(bytes_of({client.copy(0)})), kSize);
  device_of(bus).run();
  EXPECT_EQ(client.records[0].status, 1);
}

TEST(QueueFile, ClosingAbandonsItsOwnOnly) {
  Bus bus = open_bus({shared(16)});
  Client gone;
  Client stays;
  auto first = open_file(bus, gone.memory());
  const auto second = open_file(bus, stays.memory());
  EXPECT_TRUE(first->write(bytes_of({gone.copy(0)})));
  EXPECT_TRUE(second->write(bytes_of({stays.copy(0)})));
  first.reset();
  device_of(bus).run();
  EXPECT_EQ(gone.records[0].status, 0);
  EXPECT_EQ(stays.records[0].status, 1);
  EXPECT_EQ(bus.devices()[0]->clients(0), 1);
}

TEST(QueueFile, DrainsWithinABound) {
  ServedOptions slow = test::by_hand();
  slow.rates->start_up = std::chrono::hours{1};
  for (const QueueSetup& setup : {shared(2), dedicated(2)}) {
    Client client;
    for (const ServedOptions& options : {slow, test::by_hand()}) {
      Bus bus = open_bus({setup}, sapphire_rapids(), options);
      const auto file = open_file(bus, client.memory());
      EXPECT_TRUE(file->drain(std::chrono::seconds{30})) << "nothing was submitted";
      EXPECT_TRUE(file->write(bytes_of({client.copy(0), client.copy(1)})));
      ASSERT_TRUE(bus.start());
      const bool is_slow = options.rates->start_up > Nanoseconds{0};
      EXPECT_EQ(file->drain(is_slow ? std::chrono::milliseconds{30} : std::chrono::seconds{30}),
                !is_slow);
      EXPECT_EQ(client.records[1].status, is_slow ? 0 : 1);
    }
  }
}

// As the kernel's driver: what the queue accepted is executed, and only then it is reset.
TEST(QueueFile, DisablingDrainsWhatWasAccepted) {
  for (const QueueSetup& setup : {shared(16), dedicated(16)}) {
    Bus bus = open_bus({setup});
    Client client;
    const auto file = open_file(bus, client.memory());
    EXPECT_EQ(file->write(bytes_of({client.copy(0), client.copy(1)})), 2 * kSize);
    EXPECT_EQ(client.records[1].status, 0);
    bus.devices()[0]->disable(0);
    EXPECT_EQ(client.records[0].status, 1);
    EXPECT_EQ(client.records[1].status, 1);
    EXPECT_EQ(client.to, client.from);
  }
}

TEST(QueueFile, AHaltedDeviceHasNothingToDrain) {
  Bus bus = open_bus({shared(2)});
  Client client;
  const auto file = open_file(bus, client.memory());
  EXPECT_TRUE(file->write(bytes_of({client.copy(0)})));
  device_of(bus).halt();
  EXPECT_TRUE(file->drain(std::chrono::seconds{30}));
}

// What write() returns, from what it is given and the room there is: the kernel's loop by counting.
struct Naive {
  std::size_t room;

  int accept(const Descriptor& descriptor) {
    if (descriptor.opcode() == Opcode::batch || descriptor.record % 32 != 0) return EINVAL;
    if (room == 0) return EAGAIN;
    --room;
    return 0;
  }

  std::pair<std::size_t, int> write(const std::vector<Descriptor>& descriptors, std::size_t bytes) {
    std::size_t done = 0;
    for (std::size_t i = 0; i < bytes / kSize; ++i) {
      const int error = accept(descriptors[i]);
      if (error != 0) return {done, done > 0 ? 0 : error};
      done += kSize;
    }
    return {done, 0};
  }
};

TEST(QueueFile, AnswersAsANaiveModelDoes) {
  rc::check([] {
    Bus bus = open_bus({shared(8)});
    Client client;
    const auto file = open_file(bus, client.memory());
    Naive naive{8};
    const std::size_t writes = *rc::gen::inRange<std::size_t>(1, 20);
    for (std::size_t i = 0; i < writes; ++i) {
      std::vector<Descriptor> descriptors;
      const std::size_t count = *rc::gen::inRange<std::size_t>(0, 6);
      for (std::size_t n = 0; n < count; ++n) {
        Descriptor descriptor = client.copy(n);
        const int kind = *rc::gen::inRange(0, 12);
        if (kind == 0) descriptor.set(Opcode::batch, 0);
        if (kind == 1) descriptor.record += *rc::gen::inRange<std::uint64_t>(1, 32);
        descriptors.push_back(descriptor);
      }
      const std::size_t cut = *rc::gen::inRange<std::size_t>(0, kSize);
      const std::size_t bytes = count * kSize - std::min(cut, count * kSize);
      const auto [done, error] = naive.write(descriptors, bytes);
      const Answer<std::size_t> answer = file->write(bytes_of(descriptors).first(bytes));
      RC_ASSERT(answer.has_value() == (error == 0));
      if (answer) RC_ASSERT(*answer == done);
      if (!answer) RC_ASSERT(static_cast<int>(answer.error()) == error);
      if (*rc::gen::inRange(0, 4) == 0) {
        device_of(bus).run();
        naive.room = 8;
      }
    }
  });
}

}  // namespace
}  // namespace headrace::emulator
