// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>

#include "benchmarks/layer/layer.h"
#include "headrace/buffer.h"

namespace headrace {
namespace {

class LayerWorkTest : public testing::Test {
 protected:
  static std::unique_ptr<Buffer> memory(Bytes bytes) {
    const Machine machine = Machine::discover().value();
    auto made = allocate(machine, bytes, Placement::on(machine.nodes.front().id));
    return made ? *std::move(made) : nullptr;
  }
};

TEST_F(LayerWorkTest, ReadsAndMultipliesWhatIsAsked) {
  const auto buffer = memory(1_MiB);
  ASSERT_NE(buffer, nullptr);
  for (const CpuSet& cpus : {CpuSet{0}, CpuSet{0, 0, 0}}) {
    // From the middle, past the end, more than the memory has.
    const auto run = run_layer(buffer->bytes(),
                               {.from = 700'000, .bytes = 3_MiB, .operations = 1'000'000}, cpus);
    ASSERT_TRUE(run.has_value()) << run.error().message;
    EXPECT_LE(run->bytes, 3_MiB);
    EXPECT_GT(run->bytes + Bytes{cpus.size() * 256}, 3_MiB);
    EXPECT_GE(run->operations + 100 * cpus.size(), 1'000'000u);
    EXPECT_GT(run->time.count(), 0);
  }
}

TEST_F(LayerWorkTest, ReadsNothingOrMultipliesNothing) {
  const auto buffer = memory(64_KiB);
  ASSERT_NE(buffer, nullptr);
  const auto reads = run_layer(buffer->bytes(), {.bytes = 64_KiB}, {0});
  ASSERT_TRUE(reads.has_value());
  EXPECT_EQ(reads->operations, 0u);
  const auto multiplies = run_layer({}, {.operations = 5000}, {0});
  ASSERT_TRUE(multiplies.has_value());
  EXPECT_EQ(multiplies->bytes, 0_B);
  EXPECT_GE(multiplies->operations, 5000u);
}

TEST_F(LayerWorkTest, RefusesWhatItCannotRead) {
  const auto buffer = memory(64_KiB);
  ASSERT_NE(buffer, nullptr);
  const LayerWork work{.bytes = 64_KiB};
  EXPECT_EQ(run_layer(buffer->bytes(), work, {}).error().code, ErrorCode::invalid);
  EXPECT_EQ(run_layer(buffer->bytes().subspan(8), work, {0}).error().code, ErrorCode::invalid);
  EXPECT_EQ(run_layer(buffer->bytes().first(64), work, {0}).error().code, ErrorCode::invalid);
  EXPECT_EQ(fill_random(buffer->bytes(), 1, {}).error().code, ErrorCode::invalid);
}

TEST_F(LayerWorkTest, RandomBytesComeFromTheSeedAlone) {
  std::vector<std::byte> one(10'007);
  std::vector<std::byte> two(10'007);
  ASSERT_TRUE(fill_random(one, 5, {0}).has_value());
  ASSERT_TRUE(fill_random(two, 5, {0, 0, 0}).has_value());
  EXPECT_EQ(one, two);
  EXPECT_EQ(std::set<std::byte>(one.begin(), one.end()).size(), 256u);
  EXPECT_LT(std::ranges::count(one, std::byte{0}), 100);
  ASSERT_TRUE(fill_random(two, 6, {0}).has_value());
  EXPECT_NE(one, two);
}

}  // namespace
}  // namespace headrace
