// SPDX-License-Identifier: Apache-2.0
#include "tests/support/dsa/memory/address_space.h"

#include "tests/support/dsa/device/device_testing.h"

namespace headrace::emulator {
namespace {

using namespace test;

TEST(DirectMemory, OnlyWhatWasAddedIsThere) {
  Pages pages(3);
  DirectMemory space;
  std::array<std::byte, 100> buffer{};
  EXPECT_EQ(space.read(pages.address(), buffer), 0U);
  EXPECT_EQ(space.read(0, buffer), 0U) << "a null pointer is a fault like any other";
  EXPECT_EQ(space.read(~std::uint64_t{0} - 10, buffer), 0U);
  space.add(pages.at(100, 50));
  pages[120] = std::byte{7};
  EXPECT_EQ(space.read(pages.address(120), buffer), 30U) << "up to its end";
  EXPECT_EQ(buffer[0], std::byte{7});
  EXPECT_EQ(space.read(pages.address(99), buffer), 0U);
  EXPECT_EQ(space.write(pages.address(140), buffer), 10U);
  EXPECT_EQ(pages[140], std::byte{7});
  space.add(pages.at(150, 4000));
  EXPECT_EQ(space.read(pages.address(120), buffer), 100U) << "neighbours are one";
  space.remove(pages.at(100, 50));
  EXPECT_EQ(space.read(pages.address(120), buffer), 0U);
}

TEST(DirectMemory, HiddenPagesComeWhenResolved) {
  Pages pages(3);
  DirectMemory space;
  space.add(pages.all());
  space.hide(pages.at(kPage, 1));
  std::array<std::byte, 3 * kPage> buffer{};
  EXPECT_EQ(space.read(pages.address(), buffer), kPage);
  EXPECT_EQ(space.write(pages.address(), buffer), kPage);
  EXPECT_EQ(space.reach(pages.address(10), 2 * kPage, Touch::read), kPage - 10);
  EXPECT_TRUE(space.resolve(pages.address(kPage + 17), Touch::read));
  EXPECT_EQ(space.read(pages.address(), buffer), 3 * kPage);
  EXPECT_EQ(space.resolved(), 1U);
  EXPECT_TRUE(space.resolve(pages.address(kPage), Touch::read));
  EXPECT_EQ(space.resolved(), 1U) << "it was there";
}

TEST(DirectMemory, CopyOnWritePagesFaultForWritesOnly) {
  Pages pages(2);
  DirectMemory space;
  space.add(pages.all());
  space.hide(pages.at(0, 1), Touch::write);
  std::array<std::byte, 10> buffer{};
  EXPECT_EQ(space.read(pages.address(), buffer), 10U);
  EXPECT_EQ(space.write(pages.address(), buffer), 0U);
  EXPECT_TRUE(space.resolve(pages.address(), Touch::read));
  EXPECT_EQ(space.write(pages.address(), buffer), 0U) << "a read does not make the copy";
  EXPECT_TRUE(space.resolve(pages.address(), Touch::write));
  EXPECT_EQ(space.write(pages.address(), buffer), 10U);
}

TEST(DirectMemory, WhatIsForbiddenStaysSo) {
  Pages pages(2);
  Pages constant(1);
  DirectMemory space;
  space.add(pages.all());
  space.add(constant.all(), false);
  space.forbid(pages.at(0, 1));
  std::array<std::byte, 10> buffer{};
  EXPECT_FALSE(space.resolve(pages.address(), Touch::read));
  EXPECT_EQ(space.read(pages.address(), buffer), 0U);
  EXPECT_EQ(space.read(constant.address(), buffer), 10U);
  EXPECT_EQ(space.write(constant.address(), buffer), 0U);
  EXPECT_FALSE(space.resolve(constant.address(), Touch::write));
  EXPECT_FALSE(space.resolve(0, Touch::read));
  space.hide(pages.at(kPage, 1));
  space.refuse_requests(true);
  EXPECT_FALSE(space.touch(&pages[kPage], Touch::read));
  space.show_all();
  EXPECT_EQ(space.read(pages.address(), buffer), 10U);
}

// SPEC 8.2: whoever sees the status sees the rest.
TEST(DirectMemory, WritesARecordAsAWhole) {
  std::array<Record, 2> records{};
  DirectMemory space;
  space.add(records[0]);
  const Record record{.status = 0x83, .result = 1, .completed = 77, .fault_address = 4096};
  EXPECT_TRUE(space.write_record(DirectMemory::number(&records[0]), record));
  EXPECT_EQ(std::memcmp(&records[0], &record, sizeof(record)), 0);
  EXPECT_TRUE(records[0].write_fault());
  EXPECT_FALSE(space.write_record(DirectMemory::number(&records[1]), record));
  EXPECT_EQ(records[1].status, 0);
}

// The way of an address space that has no better: all but the status first.
TEST(AddressSpace, WritesTheStatusLast) {
  class Log final : public AddressSpace {
   public:
    std::size_t read(std::uint64_t, std::span<std::byte>) override { return 0; }
    std::size_t write(std::uint64_t address, std::span<const std::byte> from) override {
      writes.emplace_back(address, from.size());
      return full ? from.size() : 0;
    }
    std::size_t reach(std::uint64_t, std::size_t, Touch) override { return 0; }
    bool resolve(std::uint64_t, Touch) override { return false; }
    std::vector<std::pair<std::uint64_t, std::size_t>> writes;
    bool full = true;
  };
  Log log;
  const std::vector<std::pair<std::uint64_t, std::size_t>> expected = {{65, 31}, {64, 1}};
  EXPECT_TRUE(log.write_record(64, {}));
  EXPECT_EQ(log.writes, expected);
  log.full = false;
  EXPECT_FALSE(log.write_record(64, {}));
  EXPECT_EQ(log.writes.size(), 3U) << "no status without the rest";
}

}  // namespace
}  // namespace headrace::emulator
