// SPDX-License-Identifier: Apache-2.0
#include "measure/experiments/dsa/dsa.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "measure/experiments/dsa/testing.h"
#include "measure/session/session.h"

namespace headrace::experiment_dsa {

using namespace session;

namespace {

class DsaTest : public testing::Test {
 protected:
  // The points with these parameters.
  std::vector<Point> points(ParameterChoices only) const {
    const Scope scope{ground_.machine(), std::move(only)};
    auto points = points_on(std::make_shared<DsaHost>(ground_.host()), scope);
    std::erase_if(points, [&](const Point& point) {
      return !scope.wants(point.row, kExperiment.parameters);
    });
    return points;
  }
  // Each measured on three mappings.
  std::vector<Row> rows(ParameterChoices only) const {
    const MeasureOptions options{
        .budget = std::nullopt, .rounds = 3, .repetitions = 1, .noise_checks = false};
    return run_session(ground_.machine(), points(std::move(only)), {}, options, {}).rows;
  }
  static std::vector<emulator::DeviceOptions> two_devices() {
    std::vector<emulator::DeviceOptions> devices(2);
    devices[1].setup.name = "dsa1";
    return devices;
  }

  const test::SoftwareDsaHost ground_{two_devices()};
};

TEST_F(DsaTest, CopiesAreRowsWithNumbers) {
  const auto found =
      rows({{"part", "submission"}, {"bytes", std::uint64_t{1024}}, {"at_once", std::uint64_t{1}}});
  EXPECT_EQ(found.size(), 2U) << "single and vectored";
  for (const Row& row : found) {
    SCOPED_TRACE(row.key());
    ASSERT_TRUE(row.value) << row.reason;
    EXPECT_GT(row.value->median, 0);
    EXPECT_EQ(row.samples.size(), 3U);
    EXPECT_EQ(row.unit, "B/s");
    EXPECT_EQ(row.word("engines"), "dsa0");
    EXPECT_EQ(row.details.at("mapped"), 1) << "software has no character device here";
  }
}

TEST_F(DsaTest, BatchesAndCopiesBesideOthersAreMeasuredToo) {
  std::vector<Point> found =
      points({{"bytes", std::uint64_t{1024}}, {"at_once", std::uint64_t{10}}});
  ASSERT_EQ(found.size(), 2U) << "batch and vectored";
  for (Point& point : points({{"part", "interference"}, {"threads", std::uint64_t{2}}})) {
    found.push_back(std::move(point));
  }
  ASSERT_EQ(found.size(), 4U);
  EXPECT_EQ(found[2].row.word("engines"), "dsa0");
  EXPECT_EQ(found[3].row.word("engines"), "dsa0 dsa1");
  BufferPool buffers(ground_.machine());
  Random random(1);
  for (const Point& point : found) {
    SCOPED_TRACE(point.row.key());
    const auto probe = point.prepare(buffers, random);
    ASSERT_TRUE(probe) << probe.error().message;
    const auto sample = (*probe)->sample();
    ASSERT_TRUE(sample) << sample.error().message;
    EXPECT_GT(sample->value, 0);
  }
}

TEST_F(DsaTest, AQueueThatIsNotConfiguredSoIsARowWithTheReason) {
  const auto found =
      rows({{"part", "queue"}, {"bytes", std::uint64_t{4096}}, {"window", std::uint64_t{4}}});
  EXPECT_EQ(found.size(), 6U);
  for (const Row& row : found) {
    const bool there = row.word("queue") == "shared" && *row.number("group_engines") == 1;
    EXPECT_EQ(row.value.has_value(), there) << row.key() << ": " << row.reason;
    EXPECT_EQ(row.reason.find("headrace dsa setup") == std::string::npos, there) << row.reason;
  }
}

TEST_F(DsaTest, PointsAreThoseOfDevicesAndHaveNamesOfTheirOwn) {
  std::set<std::string> parts, keys;
  for (const Point& point : points({})) {
    parts.insert(std::string(point.row.word("part")));
    EXPECT_TRUE(keys.insert(point.row.key()).second) << point.row.key();
    EXPECT_EQ(point.row.experiment, "dsa");
    if (point.prepare) {
      EXPECT_GT(point.cost, Nanoseconds{0});
    } else {
      EXPECT_EQ(point.row.reason, "a node is too small for copies of this size");
      EXPECT_GT(std::get<std::uint64_t>(*point.row.parameter("bytes")), (1_MiB).value);
    }
  }
  EXPECT_EQ(parts,
            (std::set<std::string>{"interference", "queue", "route", "submission", "threads"}));
}

TEST_F(DsaTest, CoresCopyTheSameWhereThatIsAskedFor) {
  const ParameterChoices cpu{{"part", "cpu"}, {"bytes", std::uint64_t{4096}}};
  EXPECT_EQ(points(cpu).size(), 3U) << "cores, a device with one copy in flight, and with many";
  const auto found =
      rows({{"part", "cpu"}, {"bytes", std::uint64_t{4096}}, {"window", std::uint64_t{1}}});
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].word("method"), "cores");
  for (const Row& row : found) {
    ASSERT_TRUE(row.value) << row.reason;
    EXPECT_EQ(row.basis, Basis::measured);
    EXPECT_GT(row.value->median, 0);
  }
}

TEST_F(DsaTest, WhatIsWantedFirstTakesLittleOfAMinute) {
  Nanoseconds sum{0};
  for (const Point& point : points({})) {
    if (point.rank <= 1) sum += point.cost;
  }
  EXPECT_GT(sum, Nanoseconds{0});
  EXPECT_LT(3 * sum, std::chrono::seconds{6}) << "three mappings of each";
}

TEST_F(DsaTest, ACopyBesideStreamIsTwoRows) {
  const auto found = points({{"part", "interference"}, {"beside", "STREAM triad"}});
  ASSERT_EQ(found.size(), 1U);
  BufferPool buffers(ground_.machine());
  Random random(1);
  const auto probe = found.front().prepare(buffers, random);
  ASSERT_TRUE(probe) << probe.error().message;
  const auto sample = (*probe)->sample();
  // One CPU, or a device of software that gets none beside cores that never rest.
  const auto failed = [&](ErrorCode code) { return !sample && sample.error().code == code; };
  if (failed(ErrorCode::absent) || failed(ErrorCode::timed_out)) {
    GTEST_SKIP() << sample.error().message;
  }
  ASSERT_TRUE(sample) << sample.error().message;
  EXPECT_GT(sample->value, 0);
  EXPECT_EQ(points({{"part", "interference"}, {"method", "stream"}}).size(), 1U);
}

TEST(DsaExperiment, WithoutADeviceOneRowSaysWhatToDo) {
  const Machine here = *Machine::discover();
  ASSERT_EQ(setenv("HEADRACE_DSA_SYSFS", "/nowhere", 1), 0);
  const auto points = kExperiment.points({here});
  unsetenv("HEADRACE_DSA_SYSFS");
  ASSERT_EQ(points.size(), 1U);
  EXPECT_EQ(points[0].row.experiment, "dsa");
  EXPECT_NE(points[0].row.reason.find("headrace predict copy --by dsa"), std::string::npos);
  EXPECT_FALSE(points[0].prepare);
  const Machine machine = *Machine::discover();
  const auto unset = kExperiment.points({machine});
  if (unset.front().prepare) GTEST_SKIP() << "this host has a DSA device";
  ASSERT_EQ(unset.size(), 1U);
  EXPECT_NE(unset[0].row.reason.find("headrace doctor"), std::string::npos);
  EXPECT_NE(unset[0].row.reason.find("headrace predict copy --by dsa"), std::string::npos);
}

}  // namespace
}  // namespace headrace::experiment_dsa
