// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>

#include "measure/experiments/experiments.h"

namespace headrace::experiment_storage {

using namespace session;

namespace {

TEST(StorageExperimentTest, ReadsAndWritesInEveryWay) {
  const auto directory = std::filesystem::temp_directory_path();
  const Machine machine = Machine::discover({.storage = {directory}}).value();
  BufferPool buffers(machine);
  Random random(1);
  std::set<std::string> ways;
  for (const Point& point : kExperiment.points({machine, {}, directory})) {
    SCOPED_TRACE(point.row.key());
    ASSERT_TRUE(point.prepare) << point.row.reason;
    const auto number = [&](const char* name) {
      return std::get<std::uint64_t>(*point.row.parameter(name));
    };
    const auto word = [&](const char* name) {
      return std::get<std::string>(*point.row.parameter(name));
    };
    if (number("bytes") != 64 << 10 || number("depth") != 4) continue;
    ways.insert(word("operation") + word("by") + word("io"));
    auto probe = point.prepare(buffers, random);
    // A file system without direct I/O, or a kernel without io_uring.
    if (!probe && probe.error().code == ErrorCode::unsupported) continue;
    ASSERT_TRUE(probe) << probe.error().message;
    for (int i = 0; i < 2; ++i) {
      const auto sample = (*probe)->sample();
      ASSERT_TRUE(sample) << sample.error().message;
      EXPECT_GT(sample->value, 0);
      EXPECT_DOUBLE_EQ(sample->value, sample->details.at("iops") * (64 << 10));
      EXPECT_GT(sample->details.at("p50_ns"), 0);
      EXPECT_GT(sample->details.at("cpu_s_per_gb"), 0);
      EXPECT_LE(sample->details.at("p50_ns"), sample->details.at("p99_ns"));
    }
  }
  EXPECT_EQ(ways.size(), 8u);
}

TEST(StorageExperimentTest, ADiskTheMachineDoesNotKnowIsAReason) {
  const Machine machine = Machine::discover({.storage = {}}).value();
  const auto points = kExperiment.points({machine});
  ASSERT_EQ(points.size(), 1u);
  EXPECT_EQ(points[0].row.reason, "no disk of this machine is behind .");
}

}  // namespace
}  // namespace headrace::experiment_storage
