// SPDX-License-Identifier: Apache-2.0
// Defects that other libraries for DSA have or had, each with the test that ours is without it.
//
//   DML        shared queues only                           Client.DedicatedQueuesDropNothing
//              devices of the caller's node only, refuses
//              versions above 2 OpenDsaTest.DmlADeviceOfAnyNodeAndVersion... the first device's
//              capabilities for all      Defects.DmlEachDeviceHasItsOwn... a batch in software ends
//              at its first error  Defects.DmlAFailureInABatchStopsNoOther a busy queue is an error
//              OpenQueueTest.AFullSharedQueueKeepsOrder... a fault is the caller's business
//              Client.PagesThatWereNeverTouched... opaque codes for configuration faults
//              OpenDsaTest.WhatCannotBeOpenedIs...
//   DML, SPDK, DPDK, LightDSA, QEMU, accel-config's tests
//              only a mapped portal CharacterDeviceTest.WhereMappingIsRefused...
//   DML, accel-config's test, LightDSA
//              a pattern is not turned after a fault PartialOperation.APatternGoesOnWhereItWas
//                                                           RunOnCpu.PartsOfAnOperationAreTheWhole
//   DTO, libfabric
//              one descriptor per write() CharacterDeviceTest.SeveralDescriptors...
//   libfabric  endless loop on EPERM, EINVAL OpenQueueTest.LibfabricAPortalThatRefuses...
//                                                           CharacterDeviceTest.AnErrorOfWrite...
//   psm3       a write() of nothing is a success            CharacterDeviceTest.Psm3What...
//              a lost descriptor turns DSA off for good OpenQueueTest.OneThatHadAnsweredIsOpened...
//   LightDSA   a copy that ran backwards goes on in front PartialOperation.ACopyThatRanBackwards...
//                                                           Defects.LightDsaACopyThatOverlaps...
//              retries for ever, or exit(-1)                Defects.LightDsaAQueueThatStaysFull...
//   SPDK       no resumption: a fault is -EINVAL            Defects.SpdkAFaultIsResumed
//   SPDK, DPDK dedicated queues only                        Client.CopiesAndSaysWhoDidIt
//              status 0x83 is unknown PartialOperation.AFaultInWritingIsAFault
//                                                           Defects.DpdkEveryCodeButAFault...
//   all        the parent's portal after a fork()           CharacterDeviceTest.AForkedChild...
//                                                           Client.AForkedChilds...
//              ats_disable=1: faults told as success        DevicesTest (the queue is unusable)
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "backend/dsa/client.h"
#include "backend/dsa/queue/portal_testing.h"
#include "dsa_emulator/dsa_emulator.h"

namespace headrace::dsa {
namespace {

std::uint64_t where(const std::vector<std::uint8_t>& bytes, std::size_t at = 0) {
  return reinterpret_cast<std::uintptr_t>(bytes.data() + at);
}

std::vector<std::uint8_t> counting(std::size_t size) {
  std::vector<std::uint8_t> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::uint8_t>(i * 7 + i / 256);
  return bytes;
}

TEST(Defects, DmlEachDeviceHasItsOwnCapabilities) {
  emulator::DeviceOptions old;
  emulator::DeviceOptions newer;
  newer.setup = emulator::dsa2();
  const auto devices = emulator::DeviceSet::start({old, newer}).value();
  std::vector<std::uint8_t> to(100);
  const Operation fill{.opcode = Opcode::fill,
                       .destination = where(to),
                       .bytes = to.size(),
                       .pattern = {1, 2},
                       .flags = flag::pattern16};
  for (const std::size_t i : {0U, 1U}) {
    const auto client = Client::open(devices->devices()[i], {.open = devices->opener()}).value();
    ASSERT_TRUE(client->run(fill));
    EXPECT_EQ(client->stats().unable, 1U - i);
    EXPECT_EQ(client->stats().by_device, i);
  }
}

TEST(Defects, DmlAFailureInABatchStopsNoOther) {
  const auto devices = emulator::DeviceSet::start({emulator::DeviceOptions{}}).value();
  const auto client = Client::open(devices->devices()[0], {.open = devices->opener()}).value();
  const auto from = counting(64 * 8);
  std::vector<std::uint8_t> to(from.size());
  std::vector<Operation> program;
  for (std::size_t i = 0; i < 8; ++i) {
    program.push_back({.opcode = Opcode::memmove,
                       .source = where(from, i * 64),
                       .destination = where(to, i * 64),
                       .bytes = 64});
  }
  program[2].destination = 4096;  // nobody's
  const auto results = client->run(program);
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(results[i].has_value(), i != 2);
    const bool same = std::equal(&from[i * 64], &from[i * 64] + 64, &to[i * 64]);
    EXPECT_EQ(same, i != 2) << i;
  }
  EXPECT_EQ(results[2].error().code, ErrorCode::invalid);
}

// Forwards and backwards, with faults anywhere, in parts and as a whole.
TEST(Defects, LightDsaACopyThatOverlapsIsRightAfterFaults) {
  for (const std::uint64_t most : {4096U, 256U}) {
    emulator::DeviceOptions options;
    options.faults.page_fault_chance = 0.5;
    options.setup.queues = {{.max_transfer = most}};
    const auto devices = emulator::DeviceSet::start({options}).value();
    const auto client = Client::open(devices->devices()[0], {.open = devices->opener()}).value();
    for (std::size_t shift = 1; shift < 1000; shift += 37) {
      for (const bool back : {false, true}) {
        auto bytes = counting(4000);
        auto wanted = bytes;
        const std::size_t from = back ? 0 : shift;
        const std::size_t to = back ? shift : 0;
        std::memmove(wanted.data() + to, wanted.data() + from, 3000);
        ASSERT_TRUE(client->run({.opcode = Opcode::memmove,
                                 .source = where(bytes, from),
                                 .destination = where(bytes, to),
                                 .bytes = 3000}));
        ASSERT_EQ(bytes, wanted) << shift;
      }
    }
    EXPECT_GT(client->device().all().front()->stats().faults, 0U);
  }
}

TEST(Defects, LightDsaAQueueThatStaysFullIsGivenUp) {
  ManualClock clock;
  test::HeldDevice held{.room = 0};
  const auto opened =
      OpenQueue::open(test::held_queue(), {.open = held.opener(), .clock = &clock}).value();
  const test::Halves memory(4096);
  ASSERT_EQ(opened->submit(memory.submissions(4, 1024)).value_or(0), 4U);
  std::vector<Ended> ended;
  for (int second = 0; second < 10; ++second) {
    opened->poll(ended);
    clock.advance(std::chrono::seconds{1});
  }
  ASSERT_EQ(ended.size(), 4U);
  for (const Ended& each : ended) {
    EXPECT_EQ(each.failure->why.code, ErrorCode::timed_out);
    EXPECT_FALSE(each.failure->undefined) << "none of it was begun";
  }
}

TEST(Defects, SpdkAFaultIsResumed) {
  test::HeldDevice held;
  const auto opened = OpenQueue::open(test::held_queue(), {.open = held.opener()}).value();
  const test::Halves memory(4096);
  ASSERT_TRUE(opened->submit(memory.submissions(1, 4096)));
  std::vector<Ended> ended;
  for (const std::uint32_t done : {1000U, 0U, 3095U}) {
    const Descriptor now = held.taken.back();
    std::memcpy(reinterpret_cast<void*>(now.destination), reinterpret_cast<const void*>(now.source),
                done);
    test::answer(now, static_cast<Code>(0x83), done);
    opened->poll(ended);
  }
  EXPECT_EQ(held.taken.back().size, 1U);
  test::copy(held.taken.back());
  opened->poll(ended);
  ASSERT_EQ(ended.size(), 1U);
  EXPECT_EQ(ended[0].failure, nullptr);
  EXPECT_TRUE(memory.equal());
  EXPECT_EQ(opened->stats().faults, 3U);
}

// The write bit is known for faults; nothing else that looks strange is taken for a success.
TEST(Defects, DpdkEveryCodeButAFaultAndSuccessIsAFailure) {
  for (unsigned status = 1; status < 256; ++status) {
    PartialOperation work(
        {.opcode = Opcode::memmove, .source = 0, .destination = 4096, .bytes = 100});
    work.next(1000);
    const Next next = work.absorb({.status = static_cast<std::uint8_t>(status)});
    const unsigned code = status & 0x7f;
    const Next wanted = code == 1 || code == 2   ? Next::done
                        : code == 3 || code == 4 ? Next::touch
                                                 : Next::failed;
    EXPECT_EQ(next, wanted) << status;
  }
}

}  // namespace
}  // namespace headrace::dsa
