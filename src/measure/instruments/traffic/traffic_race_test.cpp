// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/traffic/traffic_race.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/fail.h"
#include "headrace/buffer.h"
#include "measure/instruments/worker_pool.h"

namespace headrace::instruments {
namespace {

std::size_t index_of(const Mix& mix, const Shape& shape) {
  const auto shapes = shapes_of(mix);
  return static_cast<std::size_t>(std::ranges::find(shapes, shape) - shapes.begin());
}

TEST(TrafficRace, TheFastestWinsThoughOneHeatWasDisturbed) {
  const Mix& read = *find_mix("read");
  const std::vector<Shape> all = shapes_of(read);
  for (std::size_t best = 0; best < all.size(); ++best) {
    std::size_t heats = 0;
    Nanoseconds total{0};
    const auto found = winner(all, [&](const std::vector<Shape>& shapes, Nanoseconds each) {
      std::vector<double> rates;
      for (const Shape& shape : shapes) {
        const std::size_t i = index_of(read, shape);
        // In the first heat every third shape is slowed down by other work; the fastest leads by
        // little.
        rates.push_back(i == best ? 1.02 : heats == 0 && i % 3 == 0 ? 0.5 : 1);
        total += each;
      }
      ++heats;
      return Result<std::vector<double>>(rates);
    });
    ASSERT_TRUE(found);
    EXPECT_EQ(*found, all[best]);
    EXPECT_GT(heats, 1u);
    EXPECT_LE(total, kRaceTime);
  }
}

TEST(TrafficRace, AnErrorOfAHeatIsTheRaces) {
  const auto found = winner(shapes_of(*find_mix("write")),
                            [](const auto&, Nanoseconds) -> Result<std::vector<double>> {
                              return fail(ErrorCode::timed_out, "busy");
                            });
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().message, "busy");
  EXPECT_EQ(winner({Shape{.streams = 4}}, nullptr)->streams, 4u) << "nothing to race";
}

TEST(TrafficRace, ShapesReadAtSeveralPlacesAndPrefetchOnlyWhatIsRead) {
  for (const Mix& mix : mixes()) {
    const std::vector<Shape> shapes = shapes_of(mix);
    for (const unsigned streams : {1U, 2U, 4U, 8U}) {
      EXPECT_TRUE(std::ranges::count(shapes, streams, &Shape::streams) > 0) << mix.name;
    }
    EXPECT_EQ(std::ranges::any_of(shapes, [](const Shape& shape) { return shape.ahead > 0; }),
              mix.reads > 0);
    for (const Shape& shape : shapes) EXPECT_EQ(TrafficKernel(mix, shape).shape(), shape);
  }
}

TEST(TrafficRace, IsRunOnceASessionForAsManyThreadsOnTheSameGround) {
  const Machine machine = Machine::discover().value();
  const NodeId node = machine.nodes.front().id;
  const auto buffer = allocate(machine, 4_MiB, Placement::on(node)).value();
  const Mix& mix = *find_mix("2:1");
  const CpuSet cpus{usable_cpus().front()};
  const std::vector<TrafficArea> areas{divide(mix, buffer->bytes())};
  Races races;
  const auto first = races.fastest(mix, cpus, "near", areas);
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_TRUE(index_of(mix, *first) < shapes_of(mix).size());
  // A race in these areas would fail: they are empty.
  EXPECT_EQ(races.fastest(mix, cpus, "near", {TrafficArea{}}).value(), *first);
  const std::vector<TrafficArea> none(2);
  EXPECT_EQ(races.fastest(mix, cpus, "far", {TrafficArea{}}).value(), Shape{});
  EXPECT_EQ(races.fastest(mix, {cpus[0], cpus[0]}, "near", none).value(), Shape{});
  // An earlier session may have been disturbed.
  EXPECT_EQ(Races().fastest(mix, cpus, "near", {TrafficArea{}}).value(), Shape{});
}

}  // namespace
}  // namespace headrace::instruments
