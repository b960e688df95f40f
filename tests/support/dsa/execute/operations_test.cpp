// SPDX-License-Identifier: Apache-2.0
// What each operation does, and how it is resumed after a page fault.
#include "tests/support/dsa/execute/operations.h"

#include <algorithm>
#include <bit>

#include "tests/support/dsa/device/device_testing.h"

namespace headrace::emulator {
namespace {

using namespace test;

constexpr std::uint32_t kBlock = kRecord | flag::block_on_fault;

class Operations : public DeviceTest {
 protected:
  Operations() {
    use({.setup = dsa3()});
    randomise();
  }
  // A page fault at byte `at` of the next descriptors, on operand `operand`.
  void plant(std::uint32_t at, unsigned operand) {
    use({.setup = dsa3(), .faults = {.script = [=](const Descriptor&, std::uint64_t number) {
                            return number > 0
                                       ? InjectedFault{}
                                       : InjectedFault{.kind = InjectedFault::Kind::page_fault,
                                                       .at = at,
                                                       .operand = operand};
                          }}});
  }
  Descriptor pair(Opcode opcode, std::size_t from, std::size_t to, std::uint32_t size,
                  std::uint32_t flags = kRecord) {
    Descriptor of = descriptor(opcode, flags);
    of.source = at(from);
    of.destination = at(to);
    of.size = size;
    return of;
  }
};

// SPEC 8.3, "Memory Move": overlapping either way.
TEST_F(Operations, MemoryMoveInBothDirections) {
  const std::pair<std::size_t, std::size_t> ways[] = {
      {100, 7100}, {7100, 100}, {5000, 5001}, {5001, 5000}};
  for (const auto& [from, to] : ways) {
    const auto source = copy_of(from, 9000);
    EXPECT_EQ(execute(pair(Opcode::memmove, from, to, 9000)).code(), Code::success);
    EXPECT_TRUE(same(to, source)) << from << " to " << to;
  }
}

// SPEC 3.6, 8.3: forwards what is done lies at the front, and the rest behind it.
TEST_F(Operations, MemoryMoveForwardsIsResumedAtItsFront) {
  const auto source = copy_of(0, 9000);
  client_.space.hide(bytes(5 * kPage + 50, 1));
  const Descriptor first = pair(Opcode::memmove, 0, 4 * kPage + 50, 9000);
  const Record record = execute(first);
  EXPECT_EQ(record.status, 0x83);
  EXPECT_EQ(record.result, 0);
  EXPECT_EQ(record.completed, kPage - 50);
  EXPECT_EQ(record.fault_address, at(5 * kPage));
  EXPECT_TRUE(same(4 * kPage + 50, std::span(source).first(kPage - 50)));
  EXPECT_TRUE(client_.space.resolve(record.fault_address, Touch::write));
  Descriptor rest = first;
  rest.source += record.completed;
  rest.destination += record.completed;
  rest.size -= record.completed;
  EXPECT_EQ(execute(rest).code(), Code::success);
  EXPECT_TRUE(same(4 * kPage + 50, source));
}

// Backwards (result 1) the rest lies at the front: the addresses stay.
TEST_F(Operations, MemoryMoveBackwardsIsResumedAtItsEnd) {
  const auto source = copy_of(100, 9000);
  client_.space.hide(bytes(kPage, 1));
  const Descriptor first = pair(Opcode::memmove, 100, 1100, 9000);
  const Record record = execute(first);
  EXPECT_EQ(record.status, 0x03);
  EXPECT_EQ(record.result, 1);
  EXPECT_EQ(record.completed, 9100 - 2 * kPage) << "down to the end of the hidden page";
  EXPECT_EQ(record.fault_address, at(kPage));
  client_.space.show_all();
  Descriptor rest = first;
  rest.size -= record.completed;
  EXPECT_EQ(execute(rest).code(), Code::success);
  EXPECT_TRUE(same(1100, source));
}

TEST_F(Operations, ABackwardStepThatCannotBeWrittenLeavesItsSource) {
  const auto source = copy_of(0, 3000);
  plant(1234, 1);
  const Descriptor first = pair(Opcode::memmove, 0, 100, 3000);
  const Record record = execute(first);
  EXPECT_EQ(record.status, 0x83);
  EXPECT_EQ(record.completed, 1234U);
  Descriptor rest = first;
  rest.size -= record.completed;
  EXPECT_EQ(execute(rest).code(), Code::success);
  EXPECT_TRUE(same(100, source));
}

// SPEC 3.6, 3.13: with block on fault the page is asked for; refused it is code 4.
TEST_F(Operations, BlockOnFault) {
  const auto source = copy_of(0, 9000);
  client_.space.hide(client_.memory.all());
  EXPECT_EQ(execute(pair(Opcode::memmove, 0, 20000, 9000, kBlock)).code(), Code::success);
  EXPECT_TRUE(same(20000, source));
  EXPECT_EQ(device_->stats().resolved, client_.space.resolved());
  EXPECT_GE(device_->stats().resolved, 6U);
  client_.space.forbid(bytes(2 * kPage, 1));
  const Record record = execute(pair(Opcode::memmove, 0, 20000, 9000, kBlock));
  EXPECT_EQ(record.status, 0x04);
  EXPECT_EQ(record.completed, 2 * kPage);
}

// SPEC 8.3, "Fill".
TEST_F(Operations, FillRepeatsItsPattern) {
  Descriptor fill = descriptor(Opcode::fill);
  fill.source = 0x0807060504030201;
  fill.destination = at(101);
  fill.size = 5003;
  const std::byte after = bytes(101 + 5003, 1)[0];
  EXPECT_EQ(execute(fill).code(), Code::success);
  for (std::size_t i = 0; i < 5003; ++i) {
    ASSERT_EQ(std::to_integer<int>(bytes(101 + i, 1)[0]), static_cast<int>(i % 8 + 1)) << i;
  }
  EXPECT_EQ(bytes(101 + 5003, 1)[0], after);
  fill.command |= flag::pattern16;
  fill.extra[0] = 0x100f0e0d0c0b0a09;
  EXPECT_EQ(execute(fill).code(), Code::success);
  for (std::size_t i = 0; i < 5003; ++i) {
    ASSERT_EQ(std::to_integer<int>(bytes(101 + i, 1)[0]), static_cast<int>(i % 16 + 1)) << i;
  }
}

// The rest of a fill begins in the middle of the pattern, which has to be turned.
TEST_F(Operations, FillIsResumedWithATurnedPattern) {
  plant(1003, 0);
  Descriptor fill = descriptor(Opcode::fill);
  fill.source = 0x0807060504030201;
  fill.destination = at(100);
  fill.size = 2000;
  const Record record = execute(fill);
  EXPECT_EQ(record.status, 0x83);
  EXPECT_EQ(record.completed, 1003U);
  fill.destination += 1003;
  fill.size -= 1003;
  fill.source = std::rotr(fill.source, 8 * (1003 % 8));
  EXPECT_EQ(execute(fill).code(), Code::success);
  for (std::size_t i = 0; i < 2000; ++i) {
    ASSERT_EQ(std::to_integer<int>(bytes(100 + i, 1)[0]), static_cast<int>(i % 8 + 1)) << i;
  }
}

// SPEC 8.3, "Compare".
TEST_F(Operations, CompareFindsTheFirstDifference) {
  std::copy_n(bytes(0, 9000).begin(), 9000, bytes(20000, 9000).begin());
  Record record = execute(pair(Opcode::compare, 0, 20000, 9000));
  EXPECT_EQ(record.status, 1);
  EXPECT_EQ(record.result, 0);
  EXPECT_EQ(record.completed, 0U);
  bytes(25001, 1)[0] ^= std::byte{1};
  bytes(26000, 1)[0] ^= std::byte{1};
  record = execute(pair(Opcode::compare, 0, 20000, 9000));
  EXPECT_EQ(record.status, 1) << "without check_result a difference is a success";
  EXPECT_EQ(record.result, 1);
  EXPECT_EQ(record.completed, 5001U);
  EXPECT_EQ(execute(pair(Opcode::compare, 0, 20000, 5001)).result, 0);
  client_.space.hide(bytes(kPage, 1));
  record = execute(pair(Opcode::compare, 0, 20000, 9000));
  EXPECT_EQ(record.status, 0x03);
  EXPECT_EQ(record.result, 0);
  EXPECT_EQ(record.completed, kPage);
}

// SPEC table 8-3, "Check Result".
TEST_F(Operations, CheckResultMakesTheUnexpectedStatus2) {
  for (const bool differ : {false, true}) {
    for (const std::uint64_t expected : {0U, 1U}) {
      Descriptor compare =
          pair(Opcode::compare, 0, differ ? 20000 : 0, 100, kRecord | flag::check_result);
      compare.extra[0] = expected;
      const Record record = execute(compare);
      EXPECT_EQ(record.status, differ == (expected == 1) ? 1 : 2);
      EXPECT_EQ(record.result, differ ? 1 : 0);
    }
  }
}

// SPEC 8.3, "Compare Pattern".
TEST_F(Operations, ComparePatternTellsAPlaceNoGreater) {
  Descriptor fill = descriptor(Opcode::fill);
  fill.source = 0x0807060504030201;
  fill.destination = at(3);
  fill.size = 9000;
  execute(fill);
  Descriptor compare = pair(Opcode::compare_pattern, 3, 0, 9000);
  compare.destination = fill.source;
  EXPECT_EQ(execute(compare).result, 0);
  bytes(3 + 5003, 1)[0] = std::byte{0xff};
  Record record = execute(compare);
  EXPECT_EQ(record.result, 1);
  EXPECT_LE(record.completed, 5003U);
  EXPECT_GT(record.completed, 5003U - 8);
  compare.size = 5003;
  EXPECT_EQ(execute(compare).result, 0);
}

// SPEC 8.3, "Memory Copy with Dualcast".
TEST_F(Operations, DualcastWritesTwice) {
  const auto source = copy_of(0, 9000);
  Descriptor dualcast = pair(Opcode::dualcast, 0, 4 * kPage + 5, 9000);
  dualcast.extra[0] = at(8 * kPage + 5);
  EXPECT_EQ(execute(dualcast).code(), Code::success);
  EXPECT_TRUE(same(4 * kPage + 5, source));
  EXPECT_TRUE(same(8 * kPage + 5, source));
  client_.space.hide(bytes(9 * kPage, 1));
  const Record record = execute(dualcast);
  EXPECT_EQ(record.status, 0x83);
  EXPECT_EQ(record.completed, kPage - 5);
  EXPECT_EQ(record.fault_address, at(9 * kPage));
}

// SPEC 8.3, "CRC Generation": CRC-32C, its seed from the descriptor or from memory.
TEST_F(Operations, CrcOfBytes) {
  const char text[] = "123456789";
  std::memcpy(bytes(kPage - 4, 9).data(), text, 9);
  Descriptor crc = descriptor(Opcode::crc);
  crc.source = at(kPage - 4);
  crc.size = 9;
  EXPECT_EQ(execute(crc).extra[0], 0xe3069283U);
  crc.command |= flag::crc64;
  EXPECT_EQ(execute(crc).extra[0], 0xae8b14860a799888U);
  crc.command &= ~flag::crc64;
  crc.extra[0] = 0x12345678;
  const std::uint64_t seeded = execute(crc).extra[0];
  EXPECT_NE(seeded, 0xe3069283U);
  crc.extra = {0, at(2000), 0};
  crc.command |= flag::read_seed;
  const std::uint32_t seed = 0x12345678;
  std::memcpy(bytes(2000, 4).data(), &seed, 4);
  EXPECT_EQ(execute(crc).extra[0], seeded);
  client_.space.hide(bytes(0, 1));
  const Record record = execute(crc);
  EXPECT_EQ(record.status, 0x03) << "of the seed";
  EXPECT_EQ(record.completed, 0U);
}

// SPEC 3.6: the CRC so far is the seed of the rest.
TEST_F(Operations, CopyCrcIsResumedFromItsCrc) {
  const auto source = copy_of(10, 9000);
  const Descriptor whole = pair(Opcode::copy_crc, 10, 20000, 9000);
  const std::uint64_t expected = execute(whole).extra[0];
  EXPECT_TRUE(same(20000, source));
  for (const std::uint32_t flags : {0U, flag::no_reflection, flag::no_data_reflection}) {
    Descriptor first = whole;
    first.command |= flags;
    const std::uint64_t all = execute(first).extra[0];
    plant(4321, 1);
    const Record record = execute(first);
    EXPECT_EQ(record.status, 0x83);
    EXPECT_EQ(record.completed, 4321U);
    Descriptor rest = first;
    rest.source += 4321;
    rest.destination += 4321;
    rest.size -= 4321;
    rest.extra[0] = record.extra[0];
    EXPECT_EQ(execute(rest).extra[0], all);
    EXPECT_EQ(all == expected, flags == 0);
  }
}

// SPEC 8.3, "Translation Fetch": pages are asked for, nothing else.
TEST_F(Operations, TranslationFetchAsksForPages) {
  client_.space.hide(client_.memory.all());
  Descriptor fetch = descriptor(Opcode::translation_fetch, kBlock);
  fetch.source = at(100);
  fetch.size = 3 * kPage;
  EXPECT_EQ(execute(fetch).code(), Code::success);
  EXPECT_EQ(client_.space.resolved(), 4U);
  fetch.command |= flag::use_stride;
  fetch.extra[1] = 4 * kPage;
  fetch.size = 12 * kPage;
  EXPECT_EQ(execute(fetch).code(), Code::success);
  EXPECT_EQ(client_.space.resolved(), 6U) << "pages 4 and 8";
  fetch.command &= ~(flag::use_stride | flag::block_on_fault);
  fetch.extra[1] = 0;
  const Record record = execute(fetch);
  EXPECT_EQ(record.status, 0x03);
  EXPECT_EQ(record.completed, 5 * kPage - 100);
}

// SPEC 8.3, "Cache Flush".
TEST_F(Operations, CacheFlushChangesNothing) {
  const auto before = copy_of(0, 9000);
  Descriptor flush = descriptor(Opcode::cache_flush, kRecord | flag::to_cache);
  flush.destination = at(7);
  flush.size = 8000;
  EXPECT_EQ(execute(flush).code(), Code::success);
  EXPECT_TRUE(same(0, before));
  client_.space.hide(bytes(kPage, 1));
  const Record record = execute(flush);
  EXPECT_EQ(record.status, 0x03);
  EXPECT_EQ(record.completed, kPage - 7);
}

// SPEC 3.12, table 8-9 code 0x1f.
TEST_F(Operations, DrainReadsBack) {
  Descriptor drain = descriptor(Opcode::drain, kRecord | flag::readback_1 | flag::readback_2);
  drain.source = at(0);
  drain.destination = at(kPage);
  EXPECT_EQ(execute(drain).code(), Code::success);
  client_.space.hide(bytes(kPage, 1));
  const Record record = execute(drain);
  EXPECT_EQ(record.code(), Code::readback_fault);
  EXPECT_EQ(record.fault_address, at(kPage));
}

}  // namespace
}  // namespace headrace::emulator
