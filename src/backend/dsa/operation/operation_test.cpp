// SPDX-License-Identifier: Apache-2.0
#include "backend/dsa/operation/operation.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstring>
#include <vector>

namespace headrace::dsa {
namespace {

constexpr std::uint64_t kMost = 1 << 20;

Record faulted(std::uint32_t completed, std::uint8_t result = 0, std::uint64_t extra = 0) {
  return {.status = 0x80 | static_cast<std::uint8_t>(Code::page_fault),
          .result = result,
          .completed = completed,
          .extra = {extra, 0}};
}

Record succeeded(std::uint8_t result = 0, std::uint64_t extra = 0) {
  return {
      .status = static_cast<std::uint8_t>(Code::success), .result = result, .extra = {extra, 0}};
}

// SPEC 8.3: a copy forwards goes on behind what is done.
TEST(PartialOperation, ACopyGoesOnBehindWhatIsDone) {
  PartialOperation work(
      {.opcode = Opcode::memmove, .source = 1000, .destination = 90000, .bytes = 500});
  work.next(kMost);
  ASSERT_EQ(work.absorb(faulted(123)), Next::touch);
  const Descriptor next = work.next(kMost);
  EXPECT_EQ(next.source, 1123U);
  EXPECT_EQ(next.destination, 90123U);
  EXPECT_EQ(next.size, 377U);
  EXPECT_EQ(work.absorb(succeeded()), Next::done);
  EXPECT_FALSE(work.rest());
}

// LightDSA goes on at the front, and has wrong data.
TEST(PartialOperation, ACopyThatRanBackwardsKeepsItsAddresses) {
  PartialOperation work(
      {.opcode = Opcode::memmove, .source = 1000, .destination = 1100, .bytes = 500});
  work.next(kMost);
  ASSERT_EQ(work.absorb(faulted(123, 1)), Next::touch);
  const Descriptor next = work.next(kMost);
  EXPECT_EQ(next.source, 1000U);
  EXPECT_EQ(next.destination, 1100U);
  EXPECT_EQ(next.size, 377U);
}

// The write bit is no part of the code: SPDK and DPDK take 0x83 for an unknown status.
TEST(PartialOperation, AFaultInWritingIsAFault) {
  EXPECT_EQ(faulted(0).code(), Code::page_fault);
  EXPECT_TRUE(faulted(0).write_fault());
}

// After success it is 0, and must not be added.
TEST(PartialOperation, BytesCompletedCountOnlyAfterAFault) {
  PartialOperation work({.opcode = Opcode::crc, .source = 0, .bytes = 100});
  work.next(kMost);
  Record record = succeeded(0, 7);
  record.completed = 12345;
  EXPECT_EQ(work.absorb(record), Next::done);
  EXPECT_EQ(work.outcome().value, 7U);
}

// DML, accel-config's test and LightDSA do not turn the pattern.
TEST(PartialOperation, APatternGoesOnWhereItWas) {
  PartialOperation work(
      {.opcode = Opcode::fill, .destination = 5, .bytes = 100, .pattern = {0x0706050403020100, 0}});
  work.next(kMost);
  ASSERT_EQ(work.absorb(faulted(3)), Next::touch);
  EXPECT_EQ(work.next(kMost).source, 0x0201000706050403U);
  EXPECT_EQ(work.next(kMost).destination, 8U);
}

TEST(PartialOperation, APatternOf16BytesToo) {
  PartialOperation work({.opcode = Opcode::fill,
                         .bytes = 100,
                         .pattern = {0x0706050403020100, 0x0f0e0d0c0b0a0908},
                         .flags = flag::pattern16});
  work.next(kMost);
  ASSERT_EQ(work.absorb(faulted(8)), Next::touch);
  EXPECT_EQ(work.next(kMost).source, 0x0f0e0d0c0b0a0908U);
  EXPECT_EQ(work.next(kMost).extra[0], 0x0706050403020100U);
}

TEST(PartialOperation, APatternToCompareWithToo) {
  PartialOperation work(
      {.opcode = Opcode::compare_pattern, .bytes = 100, .pattern = {0x0706050403020100, 0}});
  work.next(kMost);
  ASSERT_EQ(work.absorb(faulted(3)), Next::touch);
  EXPECT_EQ(work.next(kMost).destination, 0x0201000706050403U);
  EXPECT_EQ(work.next(kMost).source, 3U);
}

// Descriptors have 32 bits for it.
TEST(PartialOperation, NoPartIsLargerThanADescriptorCanSay) {
  PartialOperation work(
      {.opcode = Opcode::memmove, .destination = 1ULL << 50, .bytes = 5ULL << 32});
  EXPECT_EQ(work.next(~0ULL).size, 0xffffffffU);
  EXPECT_EQ(PartialOperation({.opcode = Opcode::memmove, .bytes = 5}).next(0).size, 1U);
}

TEST(PartialOperation, ACrcGoesOnFromItsPartialValue) {
  PartialOperation work(
      {.opcode = Opcode::copy_crc, .destination = 9000, .bytes = 100, .seed = 42});
  work.next(kMost);
  ASSERT_EQ(work.absorb(faulted(0, 0, 99)), Next::touch);
  EXPECT_EQ(work.next(kMost).extra[0], 42U) << "nothing done: the old seed";
  ASSERT_EQ(work.absorb(faulted(10, 0, 99)), Next::touch);
  EXPECT_EQ(work.next(kMost).extra[0], 99U);
  EXPECT_EQ(work.next(kMost).destination, 9010U);
}

TEST(PartialOperation, ADeltaBeginsAgain) {
  PartialOperation work({.opcode = Opcode::create_delta,
                         .source = 8,
                         .destination = 1 << 16,
                         .bytes = 4096,
                         .delta = 1 << 20,
                         .delta_bytes = 800});
  const Descriptor first = work.next(kMost);
  ASSERT_EQ(work.absorb(faulted(2048, 0, 30)), Next::touch);
  EXPECT_EQ(work.next(kMost), first);
}

TEST(PartialOperation, ADifferenceIsCountedFromTheFront) {
  PartialOperation work(
      {.opcode = Opcode::compare, .source = 0, .destination = 10000, .bytes = 300});
  work.next(100);
  EXPECT_EQ(work.absorb(succeeded()), Next::more);
  work.next(100);
  ASSERT_EQ(work.absorb(faulted(50)), Next::touch);
  work.next(100);
  Record differs = succeeded(1);
  differs.completed = 7;
  EXPECT_EQ(work.absorb(differs), Next::done);
  EXPECT_EQ(work.outcome().result, 1);
  EXPECT_EQ(work.outcome().value, 157U);
}

TEST(PartialOperation, ARecordThatMakesNoSenseIsAFailure) {
  PartialOperation work({.opcode = Opcode::memmove, .source = 0, .destination = 9000, .bytes = 10});
  work.next(kMost);
  EXPECT_EQ(work.absorb(faulted(11)), Next::failed);
  EXPECT_EQ(work.absorb({.status = 0x3e}), Next::failed) << "a status without meaning";
}

TEST(PartialOperation, FaultsWithoutEndAreHopeless) {
  PartialOperation work({.opcode = Opcode::memmove, .source = 0, .destination = 9000, .bytes = 10});
  for (int i = 0; i < 100; ++i) {
    work.next(kMost);
    work.absorb(faulted(0));
  }
  EXPECT_TRUE(work.hopeless());
}

TEST(PartialOperation, WhatWritesToWhatItReadsIsNotDoneTwice) {
  EXPECT_TRUE(
      PartialOperation({.opcode = Opcode::memmove, .source = 0, .destination = 10, .bytes = 10})
          .repeatable());
  EXPECT_FALSE(
      PartialOperation({.opcode = Opcode::memmove, .source = 0, .destination = 9, .bytes = 10})
          .repeatable());
  EXPECT_FALSE(PartialOperation({.opcode = Opcode::dualcast,
                                 .source = 0,
                                 .destination = 4096,
                                 .destination2 = 5,
                                 .bytes = 10})
                   .repeatable());
  EXPECT_TRUE(
      PartialOperation({.opcode = Opcode::fill, .destination = 9, .bytes = 10}).repeatable());
}

// A device of plain loops that stops where it likes: whatever it does, the bytes are right.
TEST(PartialOperation, AnyCutsAndFaultsMoveEveryByteOnce) {
  EXPECT_TRUE(rc::check([] {
    constexpr std::size_t kSize = 600;
    std::vector<std::uint8_t> memory(kSize);
    for (std::size_t i = 0; i < kSize; ++i) memory[i] = static_cast<std::uint8_t>(i * 7);
    std::vector<std::uint8_t> wanted = memory;
    const auto bytes = *rc::gen::inRange<std::uint64_t>(1, 200);
    const auto from = *rc::gen::inRange<std::uint64_t>(0, kSize - bytes);
    const auto to = *rc::gen::inRange<std::uint64_t>(0, kSize - bytes);
    const auto most = *rc::gen::inRange<std::uint64_t>(1, 250);
    std::memmove(wanted.data() + to, wanted.data() + from, bytes);
    PartialOperation work(
        {.opcode = Opcode::memmove, .source = from, .destination = to, .bytes = bytes});
    Next next = Next::more;
    while (next != Next::done) {
      const Descriptor d = work.next(most);
      RC_ASSERT(d.size <= most);
      const auto done = *rc::gen::inRange<std::uint32_t>(0, d.size + 1);
      // Backwards where that is needed, and where it is not forbidden.
      const bool backwards = d.destination > d.source && d.destination < d.source + d.size;
      const std::uint64_t skip = backwards ? d.size - done : 0;
      std::memmove(memory.data() + d.destination + skip, memory.data() + d.source + skip, done);
      next =
          done == d.size ? work.absorb(succeeded()) : work.absorb(faulted(done, backwards ? 1 : 0));
      if (work.hopeless()) break;
    }
    while (const auto rest = work.rest()) {
      std::memmove(memory.data() + rest->destination, memory.data() + rest->source, rest->bytes);
      work.add({});
    }
    RC_ASSERT(memory == wanted);
  }));
}

}  // namespace
}  // namespace headrace::dsa
