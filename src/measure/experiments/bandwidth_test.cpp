// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>

#include "core/fail.h"
#include "headrace/clock.h"
#include "measure/experiments/experiments.h"
#include "measure/instruments/traffic/random_traffic.h"
#include "measure/instruments/traffic/traffic.h"
#include "measure/instruments/worker_pool.h"
#include "measure/session/probe_testing.h"
#include "tests/support/machines.h"

namespace headrace::experiment_bandwidth {

using namespace session;

namespace {

// A counter that advances by a fixed number of bytes per reading.
class Steps final : public BusCounter {
 public:
  explicit Steps(double step) : step_(step) {}
  Result<double> bytes() override { return at_ += step_; }
  const std::string& words() const override { return words_; }
  bool counts(const Node& node) const override { return node.kind == NodeKind::dram; }

 private:
  const double step_;
  const std::string words_ = "steps";
  double at_ = 0;
};

TEST(BandwidthTest, EveryMixGivesItsThreeNumbers) {
  const Machine machine = test::small_host();
  BufferPool buffers(machine);
  Random random(1);
  std::size_t seen = 0;
  // Computes the bytes that the walk reports: bus_counted is kCounted divided by them, times the
  // rate.
  constexpr double kCounted = 1e9;
  const auto bus = std::make_shared<BusMeter>(std::make_unique<Steps>(kCounted));
  for (const Point& point : kExperiment.points({.machine = machine, .bus = bus})) {
    if (std::get<std::uint64_t>(*point.row.parameter("threads")) != 1) continue;
    const auto probe = point.prepare(buffers, random);
    ASSERT_TRUE(probe.has_value()) << probe.error().message;
    if (seen == 0) (void)(*probe)->sample();  // a counter's first reading is skipped
    const Nanoseconds begin = system_clock().now();
    const auto sample = (*probe)->sample();
    const double wall = seconds(system_clock().now() - begin);
    ASSERT_TRUE(sample.has_value());
    const Mix& mix = *find_mix(std::get<std::string>(*point.row.parameter("mix")));
    const double read_write = sample->details.at("read_write");
    const double moved = kCounted * read_write / sample->details.at("bus_counted");
    EXPECT_NEAR(std::remainder(moved, 64), 0, 1e-3) << "bytes of lines";
    EXPECT_GE(moved, 65536) << mix.name;
    // The walk took at least 20 ms, and less than this test.
    EXPECT_LE(read_write, moved / 0.02 * 1.001) << mix.name;
    EXPECT_GE(read_write, moved / wall) << mix.name;
    EXPECT_DOUBLE_EQ(sample->value, read_write * mix.payload_factor()) << mix.name;
    EXPECT_DOUBLE_EQ(sample->details.at("bus"), read_write * mix.bus_factor()) << mix.name;
    ++seen;
    if (seen == mixes().size()) break;
  }
  EXPECT_EQ(seen, mixes().size());
}

TEST(BandwidthTest, CountedBusTraffic_IsBesideTheArithmetic) {
  const Machine machine = test::small_host();
  const auto races = std::make_shared<Races>();
  const auto sample_with = [&](std::shared_ptr<BusMeter> bus) {
    BufferPool buffers(machine);
    Random random(1);
    const auto points =
        kExperiment.points({.machine = machine, .bus = std::move(bus), .races = races});
    const auto probe = points.front().prepare(buffers, random);
    EXPECT_TRUE(probe) << probe.error().message;
    (void)(*probe)->sample();  // a counter's first reading is skipped
    return (*probe)->sample();
  };
  const auto without = sample_with(std::make_shared<BusMeter>());
  ASSERT_TRUE(without);
  EXPECT_FALSE(without->details.contains("bus_counted"));
  EXPECT_FALSE(without->words.contains("counted_by"));
  const auto some = sample_with(std::make_shared<BusMeter>(std::make_unique<Steps>(1e6)));
  ASSERT_TRUE(some);
  EXPECT_GT(some->details.at("bus_counted"), 0);
  EXPECT_EQ(some->words.at("counted_by"), "steps");
}

// A sample with a counter of DDR memory only, on this machine as if its memory were of `kind`.
Result<Sample> counted_sample(const Experiment& experiment, const ParameterChoices& only,
                              NodeKind kind) {
  Machine machine = test::small_host(128_MiB, {.storage = {}});
  for (Node& node : machine.nodes) node.kind = kind;
  BufferPool buffers(machine);
  Random random(1);
  const Scope scope{.machine = machine,
                    .only = only,
                    .bus = std::make_shared<BusMeter>(std::make_unique<Steps>(1e9))};
  for (const Point& point : experiment.points(scope)) {
    if (!point.row.reason.empty() || !scope.wants(point.row, experiment.parameters)) continue;
    HEADRACE_TRY(const auto probe, point.prepare(buffers, random));
    (void)sample_patiently(*probe);  // a counter's first reading is skipped
    return sample_patiently(*probe);
  }
  return fail(ErrorCode::absent, "no point");
}

TEST(BusCounted, RowsOfMemoryThatTheCounterDoesNotSeeHaveNone) {
  const std::pair<const Experiment&, ParameterChoices> asked[] = {
      {experiment_bandwidth::kExperiment, {{"threads", std::uint64_t{1}}}},
      {experiment_bandwidth::kExperiment, {{"pattern", "random"}}},
      {experiment_copy::kExperiment, {{"threads", std::uint64_t{1}}}},
      {experiment_stream::kExperiment, {}},
      {experiment_loaded::kExperiment, {}},
  };
  for (const auto& [experiment, only] : asked) {
    const auto of_dram = counted_sample(experiment, only, NodeKind::dram);
    if (!of_dram && of_dram.error().code == ErrorCode::absent) continue;  // `loaded`, on one CPU
    ASSERT_TRUE(of_dram) << experiment.name << ": " << of_dram.error().message;
    EXPECT_TRUE(of_dram->details.contains("bus_counted")) << experiment.name;
    EXPECT_EQ(of_dram->words.at("counted_by"), "steps");
    const auto of_hbm = counted_sample(experiment, only, NodeKind::hbm);
    ASSERT_TRUE(of_hbm) << experiment.name << ": " << of_hbm.error().message;
    EXPECT_FALSE(of_hbm->details.contains("bus_counted")) << experiment.name;
    EXPECT_FALSE(of_hbm->words.contains("counted_by")) << experiment.name;
  }
}

TEST(AddCounted, BytesForEachThatWasMovedTimesTheRate) {
  Sample sample;
  const BusMeter bus(std::make_unique<Steps>(1));
  add_counted(sample, bus, 150.0, 100, 7e9);
  EXPECT_DOUBLE_EQ(sample.details.at("bus_counted"), 1.5 * 7e9);
  Sample none;
  add_counted(none, bus, std::nullopt, 100, 7e9);
  add_counted(none, bus, 150.0, 0, 7e9);
  EXPECT_TRUE(none.details.empty());
}

Machine eight_cpus() { return test::machine_of({{0, 1, 2, 3, 4, 5, 6, 7}}); }

// "read 8 64" for points in random order: mix, threads, block.
std::set<std::string> at_random(ParameterChoices only) {
  const Machine machine = eight_cpus();
  const AsIfUsable as_if(machine.nodes.front().cpus);
  std::set<std::string> found;
  for (const Point& point : kExperiment.points({.machine = machine, .only = std::move(only)})) {
    EXPECT_EQ(point.row.parameter("pattern") == nullptr, point.row.parameter("block") == nullptr);
    if (point.row.word("pattern") != "random") continue;
    found.insert(fmt::format("{} {} {}", point.row.word("mix"), *point.row.number("threads"),
                             *point.row.number("block")));
  }
  return found;
}

TEST(BandwidthTest, RandomOrder_IsByAllCpusUnlessRequestedOtherwise) {
  const std::set<std::string> usual = {"read 8 64", "read 8 256", "read 8 4096", "nt_write 8 64"};
  EXPECT_EQ(at_random({}), usual);
  EXPECT_TRUE(at_random({{"mix", "read"}}).empty());
  const auto asked = at_random({{"pattern", "random"}});
  EXPECT_TRUE(asked.contains("3:1 2 256"));
  EXPECT_TRUE(asked.contains("write 1 4096"));
  EXPECT_FALSE(asked.contains("copy 8 64"));
}

// Each mix maps the memory that its walk needs to exceed the caches four times.
TEST(BandwidthTest, RandomOrderWalksOverWhatIsWanted) {
  const Machine machine = eight_cpus();
  const CpuSet& cpus = machine.nodes.front().cpus;
  const AsIfUsable as_if(cpus);
  Row row;
  const Bytes wanted = past_caches(row, machine, cpus, kCachesPassed, 16_MiB * cpus.size());
  std::size_t seen = 0;
  for (const Point& point :
       kExperiment.points({.machine = machine, .only = {{"pattern", "random"}}})) {
    if (point.row.word("pattern") != "random" || *point.row.number("threads") != 8) continue;
    const Bytes each = instruments::random_area(*find_mix(point.row.word("mix")), wanted / 8);
    EXPECT_EQ(point.setup.cost, touching(each * 8, cpus.size())) << point.row.key();
    ++seen;
  }
  EXPECT_GT(seen, 3U);
}

TEST(BandwidthTest, RandomOrderRacesNothing) {
  const Machine machine = eight_cpus();
  const AsIfUsable as_if(machine.nodes.front().cpus);
  for (const Point& point : kExperiment.points({.machine = machine})) {
    EXPECT_EQ(point.races.empty(), point.row.word("pattern") == "random") << point.row.key();
  }
}

TEST(BandwidthTest, RandomBlocksAreMeasuredAsOthersAre) {
  const Machine machine = test::small_host();
  Random random(1);
  std::size_t seen = 0;
  for (const Point& point : kExperiment.points({.machine = machine})) {
    if (point.row.word("pattern") != "random") continue;
    BufferPool buffers(machine);
    const auto sample = sample_of(point, buffers, random);
    ASSERT_TRUE(sample) << sample.error().message;
    EXPECT_GT(sample->value, 0);
    EXPECT_DOUBLE_EQ(sample->value, sample->details.at("read_write"));
    EXPECT_GE(sample->details.at("huge_part"), 0);
    EXPECT_NE(sample->words.at("kernel").find("random order"), std::string::npos);
    if (++seen == 2) break;
  }
  EXPECT_EQ(seen, 2U);
}

}  // namespace
}  // namespace headrace::experiment_bandwidth
