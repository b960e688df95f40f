// SPDX-License-Identifier: Apache-2.0
#include "backend/dsa/operation/cpu_operation.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "headrace/random.h"

namespace headrace::dsa {
namespace {

using Bytes8 = std::vector<std::uint8_t>;

std::uint64_t place_of(const std::uint8_t& byte) { return reinterpret_cast<std::uintptr_t>(&byte); }

std::uint8_t byte_of_pattern(const Operation& op, std::uint64_t i) {
  const std::uint64_t width =
      op.opcode == Opcode::fill && (op.flags & flag::pattern16) != 0 ? 16 : 8;
  return static_cast<std::uint8_t>(op.pattern[i % width / 8] >> (i % 8 * 8));
}

TEST(RunOnCpu, CopiesThatOverlapInBothDirections) {
  for (const std::size_t to : {10U, 30U, 50U}) {
    Bytes8 memory(200);
    for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::uint8_t>(i);
    ASSERT_TRUE(run_on_cpu({.opcode = Opcode::memmove,
                            .source = place_of(memory[30]),
                            .destination = place_of(memory[to]),
                            .bytes = 100}));
    for (std::size_t i = 0; i < 100; ++i) ASSERT_EQ(memory[to + i], i + 30);
  }
}

TEST(RunOnCpu, FillsWithBothWidthsAndAnyLength) {
  for (const std::uint32_t flags : {0U, flag::pattern16}) {
    for (std::uint64_t bytes = 0; bytes < 40; ++bytes) {
      Bytes8 memory(50, 0xee);
      const Operation fill{.opcode = Opcode::fill,
                           .destination = place_of(memory[3]),
                           .bytes = bytes,
                           .pattern = {0x0807060504030201, 0x1817161514131211},
                           .flags = flags};
      ASSERT_TRUE(run_on_cpu(fill));
      for (std::size_t i = 0; i < memory.size(); ++i) {
        const bool inside = i >= 3 && i < 3 + bytes;
        ASSERT_EQ(memory[i], inside ? byte_of_pattern(fill, i - 3) : 0xee);
      }
    }
  }
}

TEST(RunOnCpu, ComparesToTheFirstDifference) {
  Bytes8 a(100, 5);
  Bytes8 b = a;
  const Operation compare{.opcode = Opcode::compare,
                          .source = place_of(a[0]),
                          .destination = place_of(b[0]),
                          .bytes = 100};
  EXPECT_EQ(run_on_cpu(compare).value().result, 0);
  b[99] = 6;
  EXPECT_EQ(run_on_cpu(compare).value().result, 1);
  EXPECT_EQ(run_on_cpu(compare).value().value, 99U);
  a[42] = 6;
  EXPECT_EQ(run_on_cpu(compare).value().value, 42U);
}

TEST(RunOnCpu, ComparesWithAPatternOf8BytesAndItsTail) {
  Bytes8 memory{1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3};
  Operation compare{.opcode = Opcode::compare_pattern,
                    .source = place_of(memory[0]),
                    .bytes = memory.size(),
                    .pattern = {0x0807060504030201, 0}};
  EXPECT_EQ(run_on_cpu(compare).value().result, 0);
  memory[10] = 9;
  EXPECT_EQ(run_on_cpu(compare).value().value, 10U);
}

// "123456789", the check value of CRC-32C (RFC 3720).
TEST(RunOnCpu, ChecksumsWithAndWithoutACopy) {
  const std::string text = "123456789";
  std::string to(9, ' ');
  Operation crc{.opcode = Opcode::crc,
                .source = reinterpret_cast<std::uintptr_t>(text.data()),
                .destination = reinterpret_cast<std::uintptr_t>(to.data()),
                .bytes = 9};
  EXPECT_EQ(run_on_cpu(crc).value().value, 0xe3069283U);
  EXPECT_EQ(to, std::string(9, ' '));
  crc.opcode = Opcode::copy_crc;
  EXPECT_EQ(run_on_cpu(crc).value().value, 0xe3069283U);
  EXPECT_EQ(to, text);
}

TEST(RunOnCpu, ADualcastFillsBoth) {
  Bytes8 from{1, 2, 3};
  Bytes8 a(3);
  Bytes8 b(3);
  ASSERT_TRUE(run_on_cpu({.opcode = Opcode::dualcast,
                          .source = place_of(from[0]),
                          .destination = place_of(a[0]),
                          .destination2 = place_of(b[0]),
                          .bytes = 3}));
  EXPECT_EQ(a, from);
  EXPECT_EQ(b, from);
}

TEST(RunOnCpu, ADeltaThatIsAppliedGivesTheSecondSide) {
  EXPECT_TRUE(rc::check([] {
    const auto words = *rc::gen::inRange<std::size_t>(1, 60);
    const auto room = *rc::gen::inRange<std::uint32_t>(0, 700);
    Bytes8 before(words * 8, 1);
    Bytes8 after = before;
    std::uint64_t changed = 0;
    for (std::size_t i = 0; i < words; ++i) {
      if (*rc::gen::inRange(0, 3) != 0) continue;
      after[i * 8 + i % 8] = 2;
      ++changed;
    }
    Bytes8 record(room + 1, 0xee);
    const Outcome made = run_on_cpu({.opcode = Opcode::create_delta,
                                     .source = place_of(before[0]),
                                     .destination = place_of(after[0]),
                                     .bytes = words * 8,
                                     .delta = place_of(record[0]),
                                     .delta_bytes = room})
                             .value();
    RC_ASSERT(record[room] == 0xee);
    RC_ASSERT(made.result == (changed == 0 ? 0 : changed * 10 > room ? 2 : 1));
    RC_ASSERT(made.value == std::min<std::uint64_t>(changed, room / 10) * 10);
    if (made.result == 2) return;
    RC_ASSERT(run_on_cpu({.opcode = Opcode::apply_delta,
                          .destination = place_of(before[0]),
                          .bytes = words * 8,
                          .delta = place_of(record[0]),
                          .delta_bytes = static_cast<std::uint32_t>(made.value)})
                  .has_value());
    RC_ASSERT(before == after);
  }));
}

TEST(RunOnCpu, ADeltaOfAnotherDestinationWritesNothingBehindIt) {
  Bytes8 memory(32, 7);
  Bytes8 record(10);
  record[0] = 2;  // the third word; the destination has two
  const auto refused = run_on_cpu({.opcode = Opcode::apply_delta,
                                   .destination = place_of(memory[0]),
                                   .bytes = 16,
                                   .delta = place_of(record[0]),
                                   .delta_bytes = 10});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::invalid);
  EXPECT_EQ(memory, Bytes8(32, 7));
}

TEST(RunOnCpu, WhatIsUnknownIsInvalid) {
  for (const int code : {0x01, 0x12, 0x1c, 0x2f}) {
    const auto refused = run_on_cpu({.opcode = static_cast<Opcode>(code)});
    ASSERT_FALSE(refused) << code;
    EXPECT_EQ(refused.error().code, ErrorCode::invalid);
  }
  for (const Opcode opcode : {Opcode::noop, Opcode::drain, Opcode::translation_fetch}) {
    EXPECT_TRUE(run_on_cpu({.opcode = opcode}));
  }
}

// What a descriptor asks of its first `bytes`.
Operation first_of(const Descriptor& d, std::uint64_t bytes) {
  Operation op{.opcode = d.opcode(),
               .source = d.source,
               .destination = d.destination,
               .destination2 = d.extra[0],
               .bytes = bytes,
               .pattern = {d.opcode() == Opcode::fill ? d.source : d.destination, d.extra[0]},
               .seed = d.extra[0],
               .flags = d.flags()};
  return op;
}

// A device of run_on_cpu() that stops where it likes.
Record run_some(const Descriptor& d, std::uint64_t done) {
  const Outcome found = run_on_cpu(first_of(d, done)).value();
  Record record;
  const bool compares = d.opcode() == Opcode::compare || d.opcode() == Opcode::compare_pattern;
  if (compares && found.result != 0) {
    record.result = 1;
    record.completed = static_cast<std::uint32_t>(found.value);
    record.status = static_cast<std::uint8_t>(Code::success);
    return record;
  }
  record.status = static_cast<std::uint8_t>(done < d.size ? Code::page_fault : Code::success);
  record.completed = done < d.size ? static_cast<std::uint32_t>(done) : 0;
  record.extra[0] = done == 0 ? 0xbad : found.value;
  return record;
}

// However an operation is cut, and wherever it faults, it finds and writes the same: no pattern
// begins anew, no offset or checksum is that of a part.
TEST(RunOnCpu, PartsOfAnOperationAreTheWhole) {
  constexpr std::array kKinds = {Opcode::fill, Opcode::compare_pattern, Opcode::compare,
                                 Opcode::crc,  Opcode::copy_crc,        Opcode::dualcast};
  for (std::uint64_t seed = 1; seed <= 20'000; ++seed) {
    Random random(seed);
    Operation op{.opcode = kKinds[random.below(kKinds.size())],
                 .bytes = 1 + random.below(100),
                 .pattern = {0x0807060504030201, 0x1817161514131211},
                 .seed = random() & 0xffffffff};
    if (op.opcode == Opcode::fill && random.below(2) == 0) op.flags = flag::pattern16;
    Bytes8 from(100);
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = byte_of_pattern(op, i);
    Bytes8 to = op.opcode == Opcode::compare ? from : Bytes8(100);
    Bytes8 to2(100);
    if (random.below(2) == 0) from[random.below(100)] ^= 0x80;
    op.source = place_of(from[0]);
    op.destination = place_of(to[0]);
    op.destination2 = place_of(to2[0]);
    const Bytes8 to_before = to;
    const Outcome whole = run_on_cpu(op).value();
    const Bytes8 wanted = to;
    const Bytes8 wanted2 = to2;
    to = to_before;
    std::ranges::fill(to2, 0);
    PartialOperation work(op);
    const std::uint64_t most = 1 + random.below(60);
    for (Next next = Next::more; next != Next::done;) {
      const Descriptor d = work.next(most);
      ASSERT_LE(d.size, most);
      next = work.absorb(run_some(d, random.below(2) == 0 ? d.size : random.below(d.size)));
      ASSERT_NE(next, Next::failed);
    }
    ASSERT_TRUE(to == wanted && to2 == wanted2) << to_string(op.opcode) << " seed " << seed;
    ASSERT_EQ(work.outcome().result, whole.result) << to_string(op.opcode) << " seed " << seed;
    ASSERT_EQ(work.outcome().value, whole.value) << to_string(op.opcode) << " seed " << seed;
  }
}

}  // namespace
}  // namespace headrace::dsa
