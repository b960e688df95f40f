// SPDX-License-Identifier: Apache-2.0
#include "backend/dsa/queue/partial_copy.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

namespace headrace::dsa {
namespace {

constexpr std::uint64_t kMost = 1 << 20;
constexpr Copy kCopy{.source = 1000, .destination = 90000, .bytes = 500};

Record faulted(std::uint32_t completed, std::uint8_t result = 0) {
  return {.status = 0x80 | static_cast<std::uint8_t>(Code::page_fault),
          .result = result,
          .completed = completed};
}

Record succeeded() { return {.status = static_cast<std::uint8_t>(Code::success)}; }

TEST(PartialCopy, Descriptor_IsAMemmoveThatWantsARecord) {
  for (const bool to_cache : {false, true}) {
    Copy copy = kCopy;
    copy.to_cache = to_cache;
    const Descriptor made = PartialCopy(copy).next(kMost);
    EXPECT_EQ(made.opcode(), Opcode::memmove);
    EXPECT_EQ(made.flags(),
              flag::record_valid | flag::request_record | (to_cache ? flag::to_cache : 0));
    EXPECT_EQ(made.source, 1000U);
    EXPECT_EQ(made.destination, 90000U);
    EXPECT_EQ(made.size, 500U);
    EXPECT_EQ(made.extra, (std::array<std::uint64_t, 3>{})) << "unused fields must be 0";
  }
}

// The field is 0 after a success, and must not be added.
TEST(PartialCopy, AfterASuccess_CompletedIsIgnored) {
  PartialCopy work(kCopy);
  work.next(200);
  Record record = succeeded();
  record.completed = 12345;
  EXPECT_EQ(work.absorb(record), Next::more);
  EXPECT_EQ(work.rest(), (Copy{.source = 1200, .destination = 90200, .bytes = 300}));
}

// A refused first descriptor is submitted again, to the same portal or to another queue.
TEST(PartialCopy, NextWithoutAnAnswer_ChangesNothing) {
  PartialCopy work(kCopy);
  const Descriptor first = work.next(kMost);
  EXPECT_EQ(work.next(kMost), first);
  EXPECT_EQ(work.next(100).size, 100U);
  EXPECT_EQ(work.absorb(succeeded()), Next::more);
  EXPECT_EQ(work.rest().bytes, 400U);
}

TEST(PartialCopy, Parts_FitTheSizeOfADescriptor) {
  PartialCopy work({.destination = 1ULL << 50, .bytes = 5ULL << 32});
  EXPECT_EQ(work.next(~0ULL).size, 0xffffffffU);
  EXPECT_EQ(PartialCopy({.bytes = 5}).next(0).size, 1U);
}

// Only faults have the write bit (SPDK and DPDK treat 0x83 as unknown), and bit 6 is part of no
// status: 0x41 is not 0x01.
TEST(PartialCopy, EveryStatusButFaultsAndSuccess_IsAFailure) {
  for (unsigned status = 1; status < 256; ++status) {
    PartialCopy work(kCopy);
    work.next(kMost);
    const unsigned code = status & 0x7f;
    const Next wanted = code == 1                ? Next::done
                        : code == 3 || code == 4 ? Next::touch
                                                 : Next::failed;
    EXPECT_EQ(work.absorb({.status = static_cast<std::uint8_t>(status)}), wanted) << status;
    EXPECT_EQ(work.rest() == kCopy, wanted != Next::done);
  }
  PartialCopy work(kCopy);
  work.next(10);
  EXPECT_EQ(work.absorb(faulted(11)), Next::failed) << "more than it had to copy";
  work.next(kMost);
  EXPECT_EQ(work.absorb(faulted(500)), Next::done) << "behind the last byte";
}

// A device of plain loops that stops at random places, in either direction. LightDSA continues a
// copy that ran backwards at its front, which gives wrong data.
TEST(PartialCopy, AnyCutsAndFaults_CopyEveryByte) {
  EXPECT_TRUE(rc::check([] {
    std::vector<std::uint8_t> from(200);
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::uint8_t>(i * 7 + 1);
    std::vector<std::uint8_t> to(from.size());
    const auto bytes = *rc::gen::inRange<std::uint64_t>(1, from.size());
    const auto most = *rc::gen::inRange<std::uint64_t>(1, 250);
    PartialCopy work({.source = 0, .destination = 0, .bytes = bytes});
    for (Next next = Next::more; next != Next::done && !work.hopeless();) {
      const Descriptor d = work.next(most);
      RC_ASSERT(d.size <= most);
      RC_ASSERT(d.destination == d.source);
      const auto done = *rc::gen::inRange<std::uint32_t>(0, d.size + 1);
      const bool backwards = *rc::gen::arbitrary<bool>();
      const std::uint64_t skip = backwards ? d.size - done : 0;
      std::memcpy(to.data() + d.destination + skip, from.data() + d.source + skip, done);
      next = work.absorb(done == d.size ? succeeded() : faulted(done, backwards ? 1 : 0));
    }
    const Copy& rest = work.rest();
    std::memcpy(to.data() + rest.destination, from.data() + rest.source, rest.bytes);
    RC_ASSERT(
        std::equal(to.begin(), to.begin() + static_cast<std::ptrdiff_t>(bytes), from.begin()));
    RC_ASSERT(bytes == to.size() || to[bytes] == 0);
  }));
}

}  // namespace
}  // namespace headrace::dsa
