// SPDX-License-Identifier: Apache-2.0
// Defects of other DSA libraries, now or earlier, each with the test that ours does not have it.
//
//   DML        shared queues only: EmulatedDevice.DedicatedQueue_DropsNothing
//              a failure ends its batch: EmulatedDevice.DmlAFailureInABatch_StopsNoOther
//              a busy queue is an error: OpenQueueTest.AFullSharedQueueKeepsOrderAndLosesNothing
//              faults are left to the caller:
//              EmulatedDevice.PagesThatWereNeverTouched_AreBroughtIn
//              opaque codes for configuration faults: OpenDsaTest.WhatCannotBeOpenedIsOneClearLine
//   DML, SPDK, DPDK, LightDSA, QEMU, accel-config's tests
//              only a mapped portal: CharacterDeviceTest.WhereMappingIsRefused...
//   DTO, libfabric
//              one descriptor per write(): CharacterDeviceTest.SeveralDescriptors...
//   libfabric  endless loop on EPERM, EINVAL: OpenQueueTest.LibfabricAPortalThatRefuses...,
//              CharacterDeviceTest.AnErrorOfWrite...
//   psm3       a write() of nothing is a success: CharacterDeviceTest.Psm3What...
//              a lost descriptor turns DSA off for good:
//              OpenQueueTest.OneThatHadAnsweredIsOpened...
//   LightDSA   a copy that ran backwards goes on in front:
//              PartialCopy.AfterABackwardsFault_BeginsAgain
//              retries for ever, or exit(-1): Defects.LightDsaAQueueThatStaysFull...
//   SPDK       no resumption, a fault is -EINVAL: Defects.SpdkAFaultIsResumed
//   SPDK, DPDK dedicated queues only: the scenarios of EmulatedDevice/RandomCopies
//              status 0x83 is unknown: Defects.DpdkEveryCodeButAFault...
//   all        the parent's portal after a fork(): CharacterDeviceTest.AForkedChild...
//              ats_disable=1, faults reported as success: DevicesTest (the queue is unusable)
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "backend/dsa/queue/portal_testing.h"

namespace headrace::dsa {
namespace {

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

// Only faults have the write bit; no other strange status counts as a success.
TEST(Defects, DpdkEveryCodeButAFaultAndSuccessIsAFailure) {
  for (unsigned status = 1; status < 256; ++status) {
    PartialCopy work({.source = 0, .destination = 4096, .bytes = 100});
    work.next(1000);
    const Next next = work.absorb({.status = static_cast<std::uint8_t>(status)});
    const unsigned code = status & 0x7f;
    const Next wanted = code == 1                ? Next::done
                        : code == 3 || code == 4 ? Next::touch
                                                 : Next::failed;
    EXPECT_EQ(next, wanted) << status;
  }
}

}  // namespace
}  // namespace headrace::dsa
