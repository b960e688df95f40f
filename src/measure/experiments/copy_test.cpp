#include <gtest/gtest.h>

#include "measure/experiments/experiments.h"

namespace headrace::experiment_copy {

using namespace session;

namespace {

TEST(CopyPointsTest, EveryEngineSizeAndStateCanBeMeasured) {
  const Machine machine = Machine::discover().value();
  BufferPool buffers(machine);
  Random random(1);
  std::size_t measured = 0;
  for (const Point& point : kExperiment.points({machine})) {
    const auto bytes = std::get<std::uint64_t>(*point.row.parameter("bytes"));
    const auto threads = std::get<std::uint64_t>(*point.row.parameter("threads"));
    if (threads != 1 || (bytes != 64 && bytes != (256_KiB).value)) continue;
    const auto probe = point.prepare(buffers, random);
    ASSERT_TRUE(probe.has_value()) << probe.error().message;
    const auto sample = (*probe)->sample();
    ASSERT_TRUE(sample.has_value());
    EXPECT_GT(sample->value, 0) << point.row.key();
    EXPECT_DOUBLE_EQ(sample->details.at("read_write"), 2 * sample->value);
    ++measured;
  }
  EXPECT_GE(measured, 8u) << "two engines at least, two sizes, cold and hot";
}

TEST(CopyPointsTest, ASmallNodeIsAReasonForLargeCopies) {
  Machine machine = Machine::discover().value();
  for (Node& node : machine.nodes) {
    if (node.byte_addressable()) node.capacity = 128_MiB;
  }
  for (const Point& point : kExperiment.points({machine})) {
    const auto bytes = std::get<std::uint64_t>(*point.row.parameter("bytes"));
    if (bytes == (64_MiB).value) {
      EXPECT_EQ(point.row.reason, "a node is too small for copies of this size");
    }
    if (bytes == (4_KiB).value) {
      EXPECT_EQ(point.row.reason, "");
    }
  }
}

}  // namespace
}  // namespace headrace::experiment_copy
