#include <gtest/gtest.h>

#include "core/sanitizers.h"
#include "headrace/measure.h"
#include "measure/experiments/experiments.h"
#include "tests/support/disassembly.h"

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
    const bool two = kernel == "copy" || kernel == "scale";
    EXPECT_NEAR(sample->details.at("bus") / sample->value, two ? 1.5 : 4.0 / 3, 1e-9) << kernel;
    if (++kernels == 4) break;
  }
  EXPECT_EQ(kernels, 4u);
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
    EXPECT_EQ(run->bytes, 1000_B * (kernel == "copy" || kernel == "scale" ? 16u : 24u));
    // Filled once only, the second one begins with what the first one wrote: not what must be.
    if (kernel == "scale") c[5] = 7;
    EXPECT_EQ(stream_run(kernel, arrays, {0, 0}).has_value(), kernel != "scale");
  }
  EXPECT_EQ(stream_run("quartic", arrays, {0}).error().code, ErrorCode::invalid);
  EXPECT_EQ(stream_run("copy", arrays, {}).error().code, ErrorCode::invalid);
  EXPECT_EQ(stream_fill({a, b, std::span(c).first(5)}, {0}).error().code, ErrorCode::invalid);
  EXPECT_EQ(stream_fill(arrays, {}).error().code, ErrorCode::invalid);
}

#if defined(__x86_64__) && !defined(HEADRACE_ASAN) && !defined(HEADRACE_TSAN)
TEST(StreamTest, TheCopyIsALoopAndNotMemcpy) {
  int stores = 0;
  test::for_each_instruction("::stream_copy(", [&](const std::string&, const std::string& line) {
    stores += line.find("mm") != std::string::npos && line.find("),") == std::string::npos;
    EXPECT_EQ(line.find("memcpy"), std::string::npos) << line;
    EXPECT_EQ(line.find("memmove"), std::string::npos) << line;
  });
  if (stores == 0) GTEST_SKIP() << "no objdump";
}
#endif

}  // namespace
}  // namespace headrace::experiment_stream
