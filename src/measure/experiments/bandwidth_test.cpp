#include <gtest/gtest.h>

#include "measure/experiments/experiments.h"
#include "measure/instruments/traffic/traffic.h"

namespace headrace::experiment_bandwidth {

using namespace session;

namespace {

TEST(BandwidthTest, EveryMixGivesItsThreeNumbers) {
  const Machine machine = Machine::discover().value();
  BufferPool buffers(machine);
  Random random(1);
  std::size_t seen = 0;
  for (const Point& point : kExperiment.points({machine})) {
    if (std::get<std::uint64_t>(*point.row.parameter("threads")) != 1) continue;
    const auto probe = point.prepare(buffers, random);
    ASSERT_TRUE(probe.has_value()) << probe.error().message;
    const auto sample = (*probe)->sample();
    ASSERT_TRUE(sample.has_value());
    const Mix& mix = *find_mix(std::get<std::string>(*point.row.parameter("mix")));
    const double read_write = sample->details.at("read_write");
    EXPECT_GT(read_write, 0);
    EXPECT_DOUBLE_EQ(sample->value, read_write * mix.payload_factor()) << mix.name;
    EXPECT_DOUBLE_EQ(sample->details.at("bus"), read_write * mix.bus_factor()) << mix.name;
    ++seen;
    if (seen == mixes().size()) break;
  }
  EXPECT_EQ(seen, mixes().size());
}

}  // namespace
}  // namespace headrace::experiment_bandwidth
