// SPDX-License-Identifier: Apache-2.0
#include <set>

#include "tests/support/dsa/device/device_testing.h"
#include "tests/support/dsa/execute/operations.h"

namespace headrace::emulator {
namespace {

using namespace test;

// Sources at 0 and 4 pages, the delta record at 8 pages.
class Delta : public DeviceTest {
 protected:
  static constexpr std::size_t kSecond = 4 * kPage;
  static constexpr std::size_t kDeltas = 8 * kPage;

  // Makes two sources that differ in the given words only.
  void differ(const std::set<std::size_t>& words) {
    randomise();
    std::memcpy(bytes(kSecond, 4 * kPage).data(), bytes(0, 4 * kPage).data(), 4 * kPage);
    for (const std::size_t word : words) bytes(kSecond + 8 * word + word % 8, 1)[0] ^= std::byte{1};
  }
  Descriptor create(std::uint32_t size, std::uint64_t most, std::uint32_t flags = kRecord) {
    Descriptor of = descriptor(Opcode::create_delta, flags);
    of.source = at(0);
    of.destination = at(kSecond);
    of.size = size;
    of.extra = {at(kDeltas), most, 0};
    return of;
  }
  Descriptor apply(std::uint32_t size, std::uint64_t deltas) {
    Descriptor of = descriptor(Opcode::apply_delta);
    of.source = at(kDeltas);
    of.destination = at(0);
    of.size = size;
    of.extra[0] = deltas;
    return of;
  }
  // Delta number `index`: its word's number.
  std::uint16_t& number(std::size_t index) {
    return *reinterpret_cast<std::uint16_t*>(bytes(kDeltas + 10 * index, 2).data());
  }
};

// SPEC 8.3, "Create Delta Record": 16 bits of offset in words, then the second source's word.
TEST_F(Delta, RecordsTheDifferences) {
  differ({1, 511, 512, 1000});
  const auto expected = copy_of(kSecond, 9000 / 8 * 8);
  const Record record = execute(create(9000 / 8 * 8, 400));
  EXPECT_EQ(record.status, 1);
  EXPECT_EQ(record.result, 1);
  EXPECT_EQ(record.extra[0], 40U);
  EXPECT_EQ(number(0), 1);
  EXPECT_EQ(number(3), 1000);
  EXPECT_EQ(std::memcmp(bytes(kDeltas + 32, 8).data(), bytes(kSecond + 8000, 8).data(), 8), 0);
  EXPECT_EQ(execute(apply(9000 / 8 * 8, 40)).code(), Code::success);
  EXPECT_TRUE(same(0, expected));
  const Record again = execute(create(9000 / 8 * 8, 400));
  EXPECT_EQ(again.result, 0) << "equal now";
  EXPECT_EQ(again.extra[0], 0U);
}

TEST_F(Delta, WhatDoesNotFitIsResult2) {
  differ({1, 2, 3, 4, 5, 6, 7, 8, 700});
  const Record record = execute(create(8000, 85));
  EXPECT_EQ(record.status, 1);
  EXPECT_EQ(record.result, 2);
  EXPECT_EQ(record.extra[0], 80U);
  EXPECT_EQ(record.completed, 5600U) << "where the first is that did not fit";
}

// SPEC 8.3: a mask of the results that are expected.
TEST_F(Delta, CheckResultTakesAMask) {
  differ({1});
  for (std::uint64_t mask = 0; mask < 8; ++mask) {
    Descriptor of = create(800, 80, kRecord | flag::check_result);
    of.extra[2] = mask;
    EXPECT_EQ(execute(of).status, (mask & 2) != 0 ? 1 : 2) << mask;
  }
}

// SPEC 3.6: what is compared and what is written so far; offsets of the rest begin anew.
TEST_F(Delta, CreateIsResumed) {
  differ({0, 5, 511, 512, 600});
  client_.space.hide(bytes(kPage, 1));
  const Record record = execute(create(8000, 200));
  EXPECT_EQ(record.status, 0x03);
  EXPECT_EQ(record.completed, kPage);
  EXPECT_EQ(record.extra[0], 30U);
  client_.space.show_all();
  Descriptor rest = create(8000 - kPage, 170);
  rest.source += record.completed;
  rest.destination += record.completed;
  rest.extra[0] += record.extra[0];
  const Record second = execute(rest);
  EXPECT_EQ(second.result, 1);
  EXPECT_EQ(second.extra[0], 20U);
  EXPECT_EQ(number(3), 0) << "word 512 is the first of the rest";
}

TEST_F(Delta, AFaultInTheDeltaRecordStopsBeforeItsDelta) {
  differ({3, 9, 70});
  Descriptor of = create(8000, 200);
  of.extra[0] = at(kDeltas + kPage - 15);  // the second delta lies across
  client_.space.hide(bytes(kDeltas + kPage, 1));
  const Record record = execute(of);
  EXPECT_EQ(record.status, 0x83);
  EXPECT_EQ(record.completed, 72U);
  EXPECT_EQ(record.extra[0], 10U);
  EXPECT_EQ(record.fault_address, at(kDeltas + kPage));
}

TEST_F(Delta, ApplyIsResumed) {
  differ({3, 9, 600});
  const auto expected = copy_of(kSecond, 8000);
  ASSERT_EQ(execute(create(8000, 200)).extra[0], 30U);
  client_.space.hide(bytes(kPage, 1), Touch::write);
  const Record record = execute(apply(8000, 30));
  EXPECT_EQ(record.status, 0x83);
  EXPECT_EQ(record.completed, 20U) << "bytes of the delta record";
  client_.space.show_all();
  Descriptor rest = apply(8000, 10);
  rest.source += 20;
  EXPECT_EQ(execute(rest).code(), Code::success);
  EXPECT_TRUE(same(0, expected));
}

// SPEC table 8-9, codes 7 and 8.
TEST_F(Delta, OffsetsIncreaseAndLieWithin) {
  differ({3, 9, 600});
  ASSERT_EQ(execute(create(8000, 200)).extra[0], 30U);
  number(1) = 3;
  EXPECT_EQ(execute(apply(8000, 30)).code(), Code::delta_offset_order);
  number(1) = 1000;
  EXPECT_EQ(execute(apply(8000, 30)).code(), Code::delta_offset_range);
  number(1) = 599;
  EXPECT_EQ(execute(apply(8000, 30)).code(), Code::success);
}

}  // namespace
}  // namespace headrace::emulator
