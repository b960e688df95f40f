// SPDX-License-Identifier: Apache-2.0
#include "tests/support/dsa/execute/batch.h"

#include "tests/support/dsa/device/device_testing.h"

namespace headrace::emulator {
namespace {

using namespace test;

// Descriptors, 'f' with a fence, '.' without.
Batch batch_of(const std::string& form, bool failed_before = false,
               std::optional<PageFault> fault = std::nullopt) {
  Task parent;
  parent.descriptor.set(Opcode::batch, failed_before ? flag::batch_error : 0);
  DescriptorList list;
  for (const char c : form) {
    list.descriptors.emplace_back();
    list.descriptors.back().set(Opcode::noop, c == 'f' ? flag::fence : 0);
  }
  list.fault = fault;
  return Batch(parent, list, 0);
}

// Executes what is ready; how many that were.
std::size_t settle(Batch& batch, bool well = true) {
  const std::size_t ready = batch.ready();
  for (std::size_t i = 0; i < ready; ++i) batch.take(0);
  for (std::size_t i = 0; i < ready; ++i) batch.completed(well);
  return ready;
}

// SPEC 3.9: between fences any order.
TEST(Batch, AFenceWaitsForAllBeforeIt) {
  Batch batch = batch_of("...f.f");
  EXPECT_EQ(batch.ready(), 3U);
  EXPECT_EQ(batch.take(2).second, 2U);
  EXPECT_EQ(batch.take(0).second, 0U);
  batch.completed(true);
  EXPECT_EQ(batch.ready(), 1U) << "one executes, one is not taken";
  batch.completed(true);
  batch.take(0);
  EXPECT_EQ(batch.ready(), 0U);
  EXPECT_FALSE(batch.over());
  batch.completed(true);
  EXPECT_EQ(settle(batch), 2U);
  EXPECT_EQ(settle(batch), 1U);
  EXPECT_TRUE(batch.over());
  EXPECT_EQ(batch.record().code(), Code::success);
  EXPECT_EQ(batch.record().completed, 6U);
}

// SPEC 3.9: after a failure the next with a fence, and all behind it, are abandoned.
TEST(Batch, AFenceBehindAFailureAbandons) {
  Batch batch = batch_of("..f.f.");
  EXPECT_EQ(settle(batch, false), 2U);
  EXPECT_TRUE(batch.over());
  EXPECT_EQ(batch.abandoned(), 4U);
  EXPECT_EQ(batch.record().code(), Code::batch_failed);
  EXPECT_EQ(batch.record().completed, 2U);
  EXPECT_EQ(batch.record().result, 1);
}

TEST(Batch, WithoutAFenceAFailureStopsNothing) {
  Batch batch = batch_of("f...");
  EXPECT_EQ(settle(batch, false), 4U) << "the first fence has nothing before it";
  EXPECT_EQ(batch.record().code(), Code::batch_failed);
  EXPECT_EQ(batch.record().completed, 4U) << "processed, successful or not";
  EXPECT_EQ(batch.abandoned(), 0U);
}

// SPEC 8.3.2: status 6, how many were processed, and the result for the flag of the rest.
TEST(Batch, AFaultInTheListLeavesTheRest) {
  Batch batch = batch_of("..", false, PageFault{0x03, 0x1234});
  settle(batch);
  EXPECT_EQ(batch.record().status, 0x06);
  EXPECT_EQ(batch.record().completed, 2U);
  EXPECT_EQ(batch.record().fault_address, 0x1000U);
  EXPECT_EQ(batch.record().result, 0);
  Batch none = batch_of("", false, PageFault{0x03, 0x1000});
  EXPECT_TRUE(none.over());
  EXPECT_EQ(none.record().completed, 0U);
}

// GENCAP bit 15, SPEC table 8-3: "Batch Error".
TEST(Batch, AnEarlierPartThatFailedCountsAtAFence) {
  Batch batch = batch_of(".f", true);
  EXPECT_EQ(settle(batch), 1U);
  EXPECT_TRUE(batch.over());
  EXPECT_EQ(batch.abandoned(), 1U);
  EXPECT_EQ(batch.record().result, 1);
  Batch at_once = batch_of("f.", true);
  EXPECT_TRUE(at_once.over());
  EXPECT_EQ(at_once.record().completed, 0U);
  EXPECT_EQ(at_once.record().code(), Code::batch_failed);
}

TEST(Batch, WhatIsAbandonedIsSilent) {
  Batch batch = batch_of("...f");
  batch.take(0);
  batch.take(0);
  batch.abandon();
  EXPECT_EQ(batch.ready(), 0U);
  EXPECT_FALSE(batch.over());
  batch.completed(true);
  batch.dropped();
  EXPECT_TRUE(batch.over());
  EXPECT_TRUE(batch.silent());
  EXPECT_EQ(batch.abandoned(), 3U);
}

TEST(Batch, ListsAreReadUpToAFault) {
  Pages pages(2);
  DirectMemory space;
  space.add(pages.all());
  Descriptor list[4];
  for (unsigned i = 0; i < 4; ++i) list[i].size = i;
  std::memcpy(pages.at(kPage - 128, sizeof(list)).data(), list, sizeof(list));
  Descriptor batch;
  batch.source = pages.address(kPage - 128);
  batch.size = 4;
  Access well(space, false, {});
  EXPECT_EQ(fetch_list(batch, well).descriptors, std::vector(list, list + 4));
  space.hide(pages.at(kPage, 1));
  Access stops(space, false, {});
  const DescriptorList part = fetch_list(batch, stops);
  EXPECT_EQ(part.descriptors.size(), 2U);
  EXPECT_EQ(part.fault->address, pages.address(kPage));
  Access asks(space, true, {});
  EXPECT_EQ(fetch_list(batch, asks).descriptors.size(), 4U);
}

}  // namespace
}  // namespace headrace::emulator
