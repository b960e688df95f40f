// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "headrace/measure.h"
#include "measure/experiments/experiments.h"
#include "measure/instruments/worker_pool.h"
#include "tests/support/machines.h"

namespace headrace::experiment_stream {

using namespace session;

namespace {

TEST(StreamTest, EveryKernelIsRightAndCountsAsStreamDoes) {
  const Machine machine = test::small_host();
  BufferPool buffers(machine);
  Random random(1);
  std::size_t kernels = 0;
  for (const Point& point : kExperiment.points({machine})) {
    const auto probe = point.prepare(buffers, random);
    ASSERT_TRUE(probe.has_value()) << probe.error().message;
    const auto sample = (*probe)->sample();  // an error if an array is wrong afterwards
    ASSERT_TRUE(sample.has_value()) << sample.error().message;
    const std::string kernel = std::get<std::string>(*point.row.parameter("kernel"));
    const bool two = kernel.ends_with("copy") || kernel.ends_with("scale");
    const double fetched = kernel.starts_with("nt_") ? 1 : two ? 1.5 : 4.0 / 3;
    EXPECT_NEAR(sample->details.at("bus") / sample->value, fetched, 1e-9) << kernel;
    if (++kernels == 8) break;
  }
  EXPECT_EQ(kernels, 8u);
}

// CPUs 0 and 1 are threads of one core.
TEST(StreamTest, AsManyThreadsWorkAsOneAsksFor) {
  Machine machine = test::machine_of({{0, 1, 2, 3}});
  machine.caches = {{.level = 1, .size = 32_KiB, .cpus = {0, 1}},
                    {.level = 1, .size = 32_KiB, .cpus = {2, 3}}};
  const instruments::AsIfUsable as_if({0, 1, 2, 3});
  const auto cpus = [&](const ParameterChoice& threads) {
    std::set<std::string> found;
    const ParameterChoices only{{"kernel", "triad"}, {"threads", threads}};
    for (const Point& point :
         kExperiment.points({.machine = machine, .only = only, .here = false})) {
      if (point.row.parameter("on") == nullptr) found.insert(point.row.cpus);
    }
    return found;
  };
  EXPECT_EQ(cpus(std::uint64_t{1}), std::set<std::string>{"0"});
  EXPECT_EQ(cpus(std::vector<ParameterValue>{std::uint64_t{2}, std::uint64_t{4}}),
            (std::set<std::string>{"0,2", "0-3"}));
  EXPECT_TRUE(cpus(std::uint64_t{5}).empty());
}

TEST(StreamTest, ArraysAreWhereOneAsks) {
  const Machine machine = Machine::discover().value();
  const NodeId home = machine.nodes.front().id;
  const ParameterChoices only = {
      {"a", std::uint64_t{raw(home)}}, {"b", "dram"}, {"kernel", "triad"}};
  const auto points = kExperiment.points({machine, only});
  ASSERT_FALSE(points.empty());
  for (const Point& point : points) {
    EXPECT_EQ(*point.row.number("a"), raw(home));
    EXPECT_EQ(machine.find(NodeId{static_cast<std::uint32_t>(*point.row.number("b"))})->kind,
              NodeKind::dram);
    EXPECT_EQ(point.row.word("kernel"), "triad");
  }
  EXPECT_TRUE(kExperiment.points({machine, {{"c", "gpu"}}}).empty());
}

TEST(StreamTest, RepetitionsOverMemoryOfTheCaller) {
  std::vector<double> a(1001);
  std::vector<double> b(1001);
  std::vector<double> c(1001);
  const StreamArrays arrays{a, b, c};
  for (const std::string& kernel : stream_kernels()) {
    ASSERT_TRUE(stream_fill(arrays, {0, 0}).has_value());
    const auto run = stream_run(kernel, arrays, {0, 0});
    ASSERT_TRUE(run.has_value()) << run.error().message;
    EXPECT_EQ(run->bytes,
              1000_B * (kernel.ends_with("copy") || kernel.ends_with("scale") ? 16u : 24u));
    // If filled only once, the second repetition would begin with the result of the first.
    const bool scale = kernel.ends_with("scale");
    if (scale) c[5] = 7;
    EXPECT_EQ(stream_run(kernel, arrays, {0, 0}).has_value(), !scale);
  }
  EXPECT_EQ(stream_run("quartic", arrays, {0}).error().code, ErrorCode::invalid);
  EXPECT_EQ(stream_run("copy", arrays, {}).error().code, ErrorCode::invalid);
  EXPECT_EQ(stream_fill({a, b, std::span(c).first(5)}, {0}).error().code, ErrorCode::invalid);
  EXPECT_EQ(stream_fill(arrays, {}).error().code, ErrorCode::invalid);
}

}  // namespace
}  // namespace headrace::experiment_stream
