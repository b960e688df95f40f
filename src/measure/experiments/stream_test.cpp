#include <gtest/gtest.h>

#include "headrace/measure.h"
#include "measure/experiments/experiments.h"

namespace headrace::experiment_stream {

using namespace session;

namespace {

TEST(StreamTest, EveryKernelIsRightAndCountsAsStreamDoes) {
  const Machine machine = Machine::discover().value();
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
    // Filled once only, the second one begins with what the first one wrote: not what must be.
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
