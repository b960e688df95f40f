#include <gtest/gtest.h>

#include "measure/experiment.h"

namespace headrace {
namespace {

TEST(StreamTest, EveryKernelIsRightAndCountsAsStreamDoes) {
  const Machine machine = Machine::discover().value();
  Arenas arenas(machine);
  Random random(1);
  std::size_t kernels = 0;
  for (const Point& point : stream_points({machine})) {
    const auto probe = point.prepare(arenas, random);
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

}  // namespace
}  // namespace headrace
