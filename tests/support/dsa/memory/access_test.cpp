// SPDX-License-Identifier: Apache-2.0
#include "tests/support/dsa/memory/access.h"

#include "tests/support/dsa/device/device_testing.h"

namespace headrace::emulator {
namespace {

using namespace test;

class AccessTest : public testing::Test {
 protected:
  AccessTest() { space_.add(pages_.all()); }
  Pages pages_{4};
  DirectMemory space_;
  std::array<std::byte, 3 * kPage> buffer_{};
};

// SPEC 3.6, table 8-9: code 3 with bit 7 for a write, and a fault address whose low bits may be 0.
TEST_F(AccessTest, WithoutBlockOnFaultAMissingPageStops) {
  space_.hide(pages_.at(kPage, 1));
  Access access(space_, false, {});
  EXPECT_EQ(access.read(pages_.address(96), buffer_), kPage - 96);
  EXPECT_EQ(access.fault()->status, 0x03);
  EXPECT_EQ(access.fault()->address, pages_.address(kPage));
  EXPECT_EQ(access.write(pages_.address(kPage + 8), buffer_), 0U);
  EXPECT_EQ(access.fault()->status, 0x83);
  const Record record = stopped(access, 77);
  EXPECT_EQ(record.status, 0x83);
  EXPECT_EQ(record.completed, 77U);
  EXPECT_EQ(record.fault_address, pages_.address(kPage));
  EXPECT_EQ(access.resolved(), 0U);
}

TEST_F(AccessTest, WithBlockOnFaultItIsAskedFor) {
  space_.hide(pages_.at(kPage, 2 * kPage));
  Access access(space_, true, {});
  EXPECT_EQ(access.read(pages_.address(96), buffer_), buffer_.size());
  EXPECT_FALSE(access.fault());
  EXPECT_EQ(access.resolved(), 2U);
  space_.forbid(pages_.at(0, 1));
  EXPECT_EQ(access.write(pages_.address(), buffer_), 0U);
  EXPECT_EQ(access.fault()->status, 0x84) << "refused";
}

// SPEC table 8-9, code 4: "too many" requests for a page.
TEST_F(AccessTest, AWorthlessGrantIsNotTakenForEver) {
  class Liar final : public AddressSpace {
   public:
    std::size_t read(std::uint64_t, std::span<std::byte>) override { return 0; }
    std::size_t write(std::uint64_t, std::span<const std::byte>) override { return 0; }
    std::size_t reach(std::uint64_t, std::size_t, Touch) override { return 0; }
    bool resolve(std::uint64_t, Touch) override { return true; }
  };
  Liar liar;
  Access access(liar, true, {});
  EXPECT_EQ(access.read(4096, buffer_), 0U);
  EXPECT_EQ(access.fault()->status, 0x04);
}

TEST_F(AccessTest, StepsEndWherePagesDo) {
  Access access(space_, false, {});
  const Region regions[] = {{100, Touch::read}, {4000, Touch::write}};
  EXPECT_EQ(access.next(0, 10000, regions), 96U);
  EXPECT_EQ(access.next(96, 10000, regions), 4096U - 196U);
  EXPECT_EQ(access.next(96, 100, regions), 4U);
  // From the ends, 10100 and 14000.
  EXPECT_EQ(access.next(0, 10000, regions, true), 14000U - 3 * kPage);
  EXPECT_EQ(access.next(14000U - 3 * kPage, 10000, regions, true),
            10100U - (14000U - 3 * kPage) - 2 * kPage);
  const Region whole[] = {{kPage, Touch::read}};
  EXPECT_EQ(access.next(0, 2 * kPage, whole), kPage);
  EXPECT_EQ(access.next(0, 2 * kPage, whole, true), kPage);
}

TEST_F(AccessTest, APlantedFaultIsMetAtItsByte) {
  const InjectedFault injected{.kind = InjectedFault::Kind::page_fault, .at = 100, .operand = 1};
  const Region regions[] = {{pages_.address(), Touch::read},
                            {pages_.address(2 * kPage), Touch::write}};
  Access access(space_, false, injected);
  EXPECT_EQ(access.next(0, 200, regions), 100U);
  EXPECT_EQ(access.next(100, 200, regions), 0U);
  EXPECT_EQ(access.fault()->status, 0x83);
  EXPECT_EQ(access.fault()->address, pages_.address(2 * kPage + 100));
  Access backwards(space_, false, injected);
  EXPECT_EQ(backwards.next(0, 200, regions, true), 100U);
  EXPECT_EQ(backwards.next(100, 200, regions, true), 0U);
  EXPECT_EQ(backwards.fault()->address, pages_.address(2 * kPage + 99));
  Access coarse(space_, false, injected);
  EXPECT_EQ(coarse.next(0, 200, regions, false, 8), 96U);
  EXPECT_EQ(coarse.next(96, 200, regions, false, 8), 0U);
  Access blocking(space_, true, injected);
  EXPECT_EQ(blocking.next(0, 200, regions), 100U);
  EXPECT_EQ(blocking.next(100, 200, regions), 100U) << "resolved: it goes on";
  EXPECT_EQ(blocking.resolved(), 1U);
}

}  // namespace
}  // namespace headrace::emulator
