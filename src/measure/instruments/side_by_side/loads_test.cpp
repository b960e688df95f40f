// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/side_by_side/loads.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "headrace/buffer.h"
#include "measure/instruments/chase.h"
#include "measure/instruments/measuring_file.h"
#include "tests/support/bytes.h"

namespace headrace::instruments {
namespace {

class LoadsTest : public testing::Test {
 protected:
  std::span<std::byte> memory(Bytes bytes) {
    auto made = allocate(machine_, bytes, Placement::on(machine_.nodes.front().id));
    EXPECT_TRUE(made) << made.error().message;
    buffers_.push_back(*std::move(made));
    return buffers_.back()->bytes();
  }

  const Machine machine_ = Machine::discover().value();
  std::vector<std::unique_ptr<Buffer>> buffers_;
};

TEST_F(LoadsTest, AChaseKnowsTheTimesOfItsWindowAlone) {
  Random random(1);
  ChaseLoad load(make_cycle(memory(1_MiB), Bytes{0}, random));
  for (int i = 0; i < 100; ++i) EXPECT_EQ(load.step().value(), kChaseUnroll);
  load.window_begins();
  EXPECT_TRUE(load.percentiles().empty());
  EXPECT_EQ(load.step().value(), kChaseUnroll);
  EXPECT_GT(load.mean_ns(), 0);
  EXPECT_LE(load.percentiles().at("p50"), load.percentiles().at("p999"));
}

TEST_F(LoadsTest, TrafficCountsBytesAndADelayMakesItsStepsShort) {
  const auto area = memory(4_MiB);
  const Mix& copy = *find_mix("copy");
  TrafficLoad fast(TrafficKernel(copy, {.streams = 2}), divide(copy, area));
  TrafficLoad slow(TrafficKernel(copy, {.streams = 2}), divide(copy, area),
                   {.time = std::chrono::milliseconds{1}, .turns = 1000});
  const double step = fast.step().value();
  EXPECT_GT(step, 0);
  EXPECT_EQ(std::fmod(step, 1024), 0);
  EXPECT_EQ(slow.step().value(), 1024);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(fast.step().value(), step) << "wraps around";
}

TEST_F(LoadsTest, ACopyCopiesAllOfItAndWrapsAround) {
  const auto from = memory(1_MiB);
  const auto to = memory(1_MiB);
  test::fill_random(from, 1);
  CopyLoad load(to, from);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(load.step().value(), 256 << 10);
  EXPECT_TRUE(test::same(from, to));
}

TEST_F(LoadsTest, AFileIsReadInBlocks) {
  MeasuringFile file(machine_, std::filesystem::temp_directory_path(), true);
  const auto opened = file.get();
  if (!opened) GTEST_SKIP() << opened.error().message;
  const auto to = memory(1_MiB);
  FileLoad load(**opened, to, 1);
  EXPECT_EQ(load.step().value(), 256 << 10);
  EXPECT_NE(to[0], to[1]) << "bytes that do not compress";
}

}  // namespace
}  // namespace headrace::instruments
