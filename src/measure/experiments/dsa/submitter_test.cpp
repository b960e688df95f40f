// SPDX-License-Identifier: Apache-2.0
#include "measure/experiments/dsa/submitter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "tests/support/dsa/dsa.h"

namespace headrace::experiment_dsa {

namespace {

// A device that is stepped by hand, on memory of the test.
class DsaSubmitterTest : public testing::Test {
 protected:
  DsaSubmitterTest() : device_(*emulator::Device::open({})) {
    const auto open = [this](const auto&) { return emulator::open_portal(*device_, 0); };
    lane_ =
        *dsa::OpenQueue::open(emulator::facts_of(device_->setup()).queues.front(), {.open = open});
  }

  DsaArea area(std::size_t copies) {
    return {.from = reinterpret_cast<std::uintptr_t>(from_.data()),
            .to = reinterpret_cast<std::uintptr_t>(to_.data()),
            .copies = copies};
  }

  std::unique_ptr<emulator::Device> device_;
  std::unique_ptr<dsa::OpenQueue> lane_;
  std::array<std::byte, 4096> from_{};
  std::array<std::byte, 4096> to_{};
};

TEST_F(DsaSubmitterTest, NeverHasMoreUnderWayThanItsWindow) {
  DsaSubmitter submitter(*lane_, {.bytes = 64_B, .copies = 25, .at_once = 2, .window = 6}, area(6));
  std::size_t most = 0;
  for (int i = 0; i < 200 && !submitter.over(); ++i) {
    ASSERT_TRUE(submitter.step());
    most = std::max(most, lane_->in_flight());
    if (i % 5 == 4) device_->run(2);
  }
  EXPECT_TRUE(submitter.over());
  EXPECT_EQ(submitter.ended(), 25U);
  EXPECT_EQ(most, 6U);
}

TEST_F(DsaSubmitterTest, CopiesItsWholeArea) {
  from_.fill(std::byte{7});
  DsaSubmitter submitter(*lane_, {.bytes = 1_KiB, .copies = 4, .at_once = 4, .window = 4}, area(4));
  while (!submitter.over()) {
    ASSERT_TRUE(submitter.step());
    device_->run();
  }
  EXPECT_EQ(to_, from_);
}

TEST_F(DsaSubmitterTest, StopsWithWhatIsUnderWay) {
  DsaSubmitter submitter(*lane_, {.bytes = 64_B, .copies = SIZE_MAX, .window = 4}, area(4));
  ASSERT_TRUE(submitter.step());
  submitter.stop();
  EXPECT_FALSE(submitter.over());
  device_->run();
  ASSERT_TRUE(submitter.step());
  EXPECT_TRUE(submitter.over());
  EXPECT_EQ(submitter.ended(), 1U);
}

TEST(DsaArea, IsBounded) {
  EXPECT_EQ(copies_of_area({.bytes = 1_KiB, .window = 50}), 50U);
  EXPECT_EQ(copies_of_area({.bytes = 64_MiB, .window = 50}), 4U);
  EXPECT_EQ(copies_of_area({.bytes = 1_GiB, .window = 50}), 1U);
}

}  // namespace
}  // namespace headrace::experiment_dsa
