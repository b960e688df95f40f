#include <gtest/gtest.h>

#include "measure/experiments/experiments.h"
#include "measure/instruments/worker_pool.h"
#include "measure/session/probe_testing.h"

namespace headrace::experiment_loaded {

using namespace session;

namespace {

TEST(LoadedTest, APointGivesPercentilesAndWhatTheTrafficReached) {
  const Machine machine = Machine::discover().value();
  BufferPool buffers(machine);
  Random random(1);
  const auto points = kExperiment.points({machine});
  ASSERT_FALSE(points.empty());
  for (const std::size_t i : {std::size_t{0}, points.size() - 1}) {
    if (!points[i].row.reason.empty()) GTEST_SKIP() << points[i].row.reason;
    const auto probe = points[i].prepare(buffers, random);
    ASSERT_TRUE(probe.has_value()) << probe.error().message;
    const auto sample = sample_patiently(**probe);
    ASSERT_TRUE(sample.has_value()) << sample.error().message;
    EXPECT_GT(sample->value, 0);
    EXPECT_GT(sample->details.at("bandwidth"), 0);
    EXPECT_GT(sample->details.at("idle"), 0);
    const auto cpus = usable_cpus(&machine.nodes.front());
    const unsigned observer = observer_of(machine, cpus);
    EXPECT_EQ(sample->words.at("observer"), "CPU " + std::to_string(observer));
    EXPECT_FALSE(sample->words.at("kernel").empty());
    EXPECT_EQ(sample->words.at("traffic").find("CPUs "), 0u);
    EXPECT_LE(sample->details.at("p50"), sample->details.at("p90"));
    EXPECT_LE(sample->details.at("p90"), sample->details.at("p99"));
    EXPECT_LE(sample->details.at("p99"), sample->details.at("p999"));
  }
}

TEST(LoadedTest, OneCpuIsAReason) {
  Machine machine = Machine::discover().value();
  for (Node& node : machine.nodes) {
    if (node.cpus.size() > 1) node.cpus.resize(1);
  }
  for (const Point& point : kExperiment.points({machine})) {
    EXPECT_EQ(point.row.reason, "one CPU cannot observe and load at once");
  }
}

}  // namespace
}  // namespace headrace::experiment_loaded
