// SPDX-License-Identifier: Apache-2.0
// The session on points that measure nothing: which are chosen, how often, and the resulting rows.
#include "measure/session/session.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <thread>

namespace headrace::session {
namespace {

Point point(std::string name, unsigned rank, Nanoseconds cost) {
  Point made;
  made.row = {.experiment = std::move(name), .unit = "ns"};
  made.rank = rank;
  made.cost = cost;
  return made;
}

constexpr double kBusy = -2;

// Gives its values in turn, one per mapping, and counts how often it was prepared.
struct Script {
  std::vector<double> values;
  std::size_t prepared = 0;
};

class Scripted final : public Probe {
 public:
  explicit Scripted(double value) : value_(value) {}
  Result<Sample> sample() override { return Sample{.value = value_, .details = {{"d", value_}}}; }

 private:
  const double value_;
};

Point scripted(std::string name, Script& script) {
  Point made = point(std::move(name), 0, std::chrono::milliseconds{1});
  made.prepare = [&script](BufferPool&, Random&) -> Result<std::unique_ptr<Probe>> {
    const double value = script.values[script.prepared++ % script.values.size()];
    if (value == kBusy) return Unexpected(Error{ErrorCode::timed_out, "busy"});
    if (value < 0) return Unexpected(Error{ErrorCode::io, "told to"});
    return std::make_unique<Scripted>(value);
  };
  return made;
}

class SessionTest : public testing::Test {
 protected:
  std::vector<Row> run(std::vector<Point> points) {
    return run_session(machine_, std::move(points), {}, options_, context_).rows;
  }
  Machine machine_;
  MeasureOptions options_{.budget = std::nullopt};
  ExperimentContext context_;
};

TEST_F(SessionTest, ABusyMomentIsTriedAgainButNotForEver) {
  Script once{.values = {kBusy, 10, 10, kBusy, 10, 10, 10, 10}};
  Script always{.values = {kBusy}};
  Script later{.values = {10, 10, kBusy, kBusy, kBusy}};
  const auto rows =
      run({scripted("once", once), scripted("always", always), scripted("later", later)});
  EXPECT_EQ(rows[0].samples, (std::vector<double>{10, 10, 10, 10, 10, 10}));
  EXPECT_FALSE(rows[1].value);
  EXPECT_EQ(rows[1].reason, "busy");
  EXPECT_EQ(always.prepared, 3u);
  EXPECT_EQ(rows[2].samples, (std::vector<double>{10, 10})) << "what it had is kept";
  EXPECT_EQ(rows[2].flags, std::vector<std::string>{"few"});
}

TEST_F(SessionTest, MeasuresUntilTheIntervalIsNarrow) {
  Script steady{.values = {10}};
  Script loud{.values = {10, 20, 30, 5}};
  const auto rows = run({scripted("steady", steady), scripted("loud", loud)});
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(steady.prepared, 6u) << "fewer have no interval";
  EXPECT_EQ(rows[0].samples, std::vector<double>(6, 10));
  EXPECT_EQ(rows[0].value->median, 10);
  EXPECT_EQ(rows[0].details.at("d"), 10);
  EXPECT_EQ(loud.prepared, 18u) << "as often as it is allowed";
  EXPECT_EQ(rows[1].samples.size(), 18u);
}

TEST_F(SessionTest, AMapping_IsWorthItsMiddleRepetition) {
  class Unsteady final : public Probe {
   public:
    Result<Sample> sample() override { return Sample{.value = values_[at_++ % values_.size()]}; }

   private:
    std::array<double, 3> values_{30, 10, 20};
    std::size_t at_ = 0;
  };
  options_.rounds = 1;
  Point unsteady = point("unsteady", 0, std::chrono::milliseconds{1});
  unsteady.prepare = [](BufferPool&, Random&) -> Result<std::unique_ptr<Probe>> {
    return std::make_unique<Unsteady>();
  };
  EXPECT_EQ(run({unsteady}).front().samples, std::vector<double>{20});
}

// Two of ten are far off: the interval of ten leaves them out, those of six to nine do not.
TEST_F(SessionTest, LooksAgainWhereOneMoreOutlierIsLeftOut) {
  Script script{.values = {10, 20, 10, 10, 10, 10, 10, 10, 5, 10}};
  const auto rows = run({scripted("outliers", script)});
  EXPECT_EQ(rows[0].samples.size(), 10u);
  EXPECT_EQ(rows[0].value->interval.low, 10);
  EXPECT_EQ(rows[0].value->interval.high, 10);
  EXPECT_EQ(rows[0].value->coverage, 0.95);
}

TEST_F(SessionTest, SomethingIsMeasuredHoweverLittleTimeThereIs) {
  options_.budget = Nanoseconds{1};
  Script values{.values = {10, kBusy}};
  const auto rows = run({scripted("first", values), scripted("second", values)});
  EXPECT_EQ(values.prepared, 1u);
  EXPECT_NE(rows[0].value.has_value(), rows[1].value.has_value());
  Script busy{.values = {kBusy}};
  std::vector<Point> many;
  for (int i = 0; i < 9; ++i) many.push_back(scripted(std::to_string(i), busy));
  run(std::move(many));
  EXPECT_EQ(busy.prepared, 3u) << "it does not try for ever";
}

// Each takes ten times its estimate: the most wanted are measured three times, instead of all once.
TEST_F(SessionTest, WhatTakesLongerThanEstimatedLeavesOthersOut) {
  options_ = {.budget = std::chrono::milliseconds{700}, .rounds = 3, .noise_checks = false};
  Script values{.values = {10}};
  std::vector<Point> points;
  for (unsigned i = 0; i < 20; ++i) {
    Point point = scripted(std::to_string(i), values);
    point.rank = i;
    point.cost = std::chrono::milliseconds{3};
    point.prepare = [prepare = point.prepare](BufferPool& buffers, Random& random) {
      std::this_thread::sleep_for(std::chrono::milliseconds{30});
      return prepare(buffers, random);
    };
    points.push_back(std::move(point));
  }
  const auto rows = run(std::move(points));
  EXPECT_TRUE(rows.front().value);
  EXPECT_TRUE(rows.back().has_flag("left_out")) << "20 x 3 x 30 ms are 1.8 s";
  EXPECT_LE(values.prepared, 24u) << "700 ms hold 23 of them";
}

// Thirty mappings and one race of 50 ms, not thirty.
TEST_F(SessionTest, ARaceLeavesNoPointOutThatFits) {
  options_ = {.budget = std::chrono::seconds{1}, .rounds = 30, .noise_checks = false};
  Script values{.values = {10}};
  std::vector<Point> points{scripted("measured first", values), scripted("raced", values)};
  points[1].rank = 1;
  points[1].races = {"read by 2"};
  const auto rows = run(std::move(points));
  EXPECT_TRUE(rows[1].value) << rows[1].reason;
}

TEST_F(SessionTest, RequestedRounds_AreExact) {
  options_.rounds = 5;
  Script loud{.values = {10, 20, 30, 5}};
  Script modelled{.values = {10, 20}};
  Point of_model = scripted("modelled", modelled);
  of_model.row.basis = Basis::modelled;
  std::size_t told = 0;
  context_.progress = [&](std::size_t, std::size_t total) { told = total; };
  const auto rows = run({scripted("loud", loud), of_model});
  EXPECT_EQ(rows[0].samples.size(), 5u);
  EXPECT_EQ(rows[1].samples, std::vector<double>{10}) << "a model gives the same every time";
  EXPECT_TRUE(rows[1].flags.empty());
  EXPECT_EQ(told, 6u);
}

// Both are twice as fast in every second round; a ratio of medians would not show their ratio.
TEST_F(SessionTest, Reference_IsComparedRoundByRound) {
  options_.rounds = 4;
  Script own{.values = {20, 40, 20, 40}};
  Script reference{.values = {10, 20, 10, 20}};
  Script alone{.values = {7}};
  Point one = scripted("own", own), other = scripted("reference", reference);
  one.comparable = {.group = "g", .detail = "ratio"};
  other.comparable = {.group = "g", .detail = "ratio", .reference = true};
  const auto rows = run({one, scripted("alone", alone), other});
  EXPECT_EQ(rows[0].details.at("ratio"), 2);
  EXPECT_FALSE(rows[1].details.contains("ratio"));
  EXPECT_EQ(rows[2].details.at("ratio"), 1);
}

TEST(PairedRatio, ComparesRoundsThatBothHave) {
  const std::vector<Mapping> own{
      {.value = 10, .round = 0}, {.value = 90, .round = 1}, {.value = 30, .round = 2}};
  const std::vector<Mapping> reference{{.value = 10, .round = 0}, {.value = 10, .round = 2}};
  EXPECT_DOUBLE_EQ(*paired_ratio(own, reference), 2) << "of 1 and 3";
  EXPECT_FALSE(paired_ratio(own, {}));
}

// Points of four groups, three in each, the first one the reference; they record the order of
// measurements.
class GroupTest : public SessionTest {
 protected:
  // Entries are group and index: "2/0" is the reference of the third group.
  std::vector<std::string> order_of(const std::vector<unsigned>& ranks_in_group) {
    std::vector<std::string> order;
    std::vector<Point> points;
    for (unsigned i = 0; i < 12; ++i) {
      const std::string name = std::to_string(i % 4) + "/" + std::to_string(i / 4);
      Point made = point(name, ranks_in_group[i / 4] + i % 4, std::chrono::milliseconds{1});
      made.comparable = {.group = std::to_string(i % 4), .detail = "r", .reference = i < 4};
      made.prepare = [&order, name](BufferPool&, Random&) -> Result<std::unique_ptr<Probe>> {
        order.push_back(name);
        return std::make_unique<Scripted>(1);
      };
      points.push_back(std::move(made));
    }
    run(std::move(points));
    return order;
  }
  static void expect_together(const std::vector<std::string>& order) {
    for (std::size_t i = 0; i + 2 < order.size(); i += 3) {
      EXPECT_EQ(order[i][0], order[i + 1][0]) << i;
      EXPECT_EQ(order[i][0], order[i + 2][0]) << i;
    }
  }
};

// No other points may come between those that are compared.
TEST_F(GroupTest, AGroupStaysTogether) {
  options_.rounds = 3;
  const auto order = order_of({0, 0, 0});
  ASSERT_EQ(order.size(), 36u);
  expect_together(order);
  const std::vector<std::string> first(order.begin(), order.begin() + 12);
  EXPECT_NE(first, std::vector<std::string>(order.begin() + 12, order.begin() + 24))
      << "in an order drawn anew";
}

// Also in the first round, which the budget may cut.
TEST_F(GroupTest, AGroupStaysTogetherWhereItsPointsAreWantedUnequally) {
  options_.rounds = 3;
  options_.budget = std::chrono::hours{1};
  const auto order = order_of({0, 10, 20});
  ASSERT_EQ(order.size(), 36u);
  expect_together(order);
  for (std::size_t i = 0; i < 12; ++i) {
    EXPECT_EQ(order[i][0], "0123"[i / 3]) << "the group whose most wanted point is wanted most";
  }
}

TEST_F(SessionTest, AReferenceIsMeasuredAsLongAsOneOfItsGroupIs) {
  Script loud{.values = {10, 20, 30, 5, 30}};
  Script reference{.values = {10}};
  Script steady{.values = {10}};
  Script elsewhere{.values = {10}};
  const std::vector<Script*> scripts{&loud, &reference, &steady, &elsewhere};
  std::vector<Point> points;
  for (Script* const script : scripts) {
    points.push_back(scripted(std::to_string(points.size()), *script));
    points.back().comparable = {.group = script == &elsewhere ? "other" : "g",
                                .detail = "ratio",
                                .reference = script == &reference || script == &elsewhere};
  }
  const auto rows = run(std::move(points));
  EXPECT_EQ(loud.prepared, 18u);
  EXPECT_EQ(reference.prepared, 18u) << "certain after six, and compared in all eighteen";
  EXPECT_EQ(steady.prepared, 6u);
  EXPECT_EQ(elsewhere.prepared, 6u) << "nobody needs it";
  // The median of all; of the first six it would be 1.5.
  EXPECT_EQ(rows[0].details.at("ratio"), 2);
}

TEST_F(SessionTest, AnErrorIsTheReasonOfItsRowAlone) {
  Script broken{.values = {-1}};
  Script later{.values = {10, -1, 10}};
  Script good{.values = {10}};
  const auto rows =
      run({scripted("broken", broken), scripted("later", later), scripted("good", good)});
  EXPECT_EQ(rows[0].reason, "told to");
  EXPECT_FALSE(rows[0].value);
  EXPECT_EQ(broken.prepared, 1u) << "not tried again";
  EXPECT_EQ(rows[1].reason, "told to");
  EXPECT_EQ(rows[2].value->median, 10);
}

TEST_F(SessionTest, StoppedSession_KeepsItsMappings) {
  Script one{.values = {10}};
  Script two{.values = {10}};
  std::size_t measured = 0;
  context_.stop = [&] { return measured >= 1; };
  context_.progress = [&](std::size_t, std::size_t) { ++measured; };
  const auto rows = run({scripted("one", one), scripted("two", two)});
  EXPECT_EQ(one.prepared + two.prepared, 1u);
  const Row& rest = rows[0].value ? rows[1] : rows[0];
  EXPECT_EQ(rest.reason, "stopped before it was measured");
  EXPECT_TRUE(rest.has_flag("stopped"));
}

TEST_F(SessionTest, ProgressReachesItsTotal) {
  Script loud{.values = {10, 20, 30}};
  Script broken{.values = {-1}};
  std::vector<std::pair<std::size_t, std::size_t>> told;
  context_.progress = [&](std::size_t done, std::size_t total) { told.emplace_back(done, total); };
  run({scripted("loud", loud), scripted("broken", broken),
       without({.experiment = "absent"}, "there is none")});
  ASSERT_FALSE(told.empty());
  EXPECT_TRUE(std::ranges::is_sorted(told));
  EXPECT_EQ(told.back(), std::pair(std::size_t{18}, std::size_t{18}));
}

// A control group stops every repetition in which `stops` returns true; the value of such a
// repetition is 1000.
class Stopped : public SessionTest {
 protected:
  Row run_with(const std::function<bool(std::size_t)>& stops) {
    class Slow final : public Probe {
     public:
      Slow(const std::function<bool(std::size_t)>& stops, std::size_t& done, std::uint64_t& times)
          : stops_(stops), done_(done), times_(times) {}
      Result<Sample> sample() override {
        const bool stopped = stops_(done_++);
        if (stopped) ++times_;
        return Sample{.value = stopped ? 1000.0 : 10.0};
      }

     private:
      const std::function<bool(std::size_t)>& stops_;
      std::size_t& done_;
      std::uint64_t& times_;
    };
    options_.rounds = 4;
    Point made = point("latency", 0, std::chrono::milliseconds{1});
    made.prepare = [&](BufferPool&, Random&) -> Result<std::unique_ptr<Probe>> {
      return std::make_unique<Slow>(stops, done_, times_);
    };
    std::vector<Point> points;
    points.push_back(std::move(made));
    return run_session(machine_, std::move(points), {}, options_, context_, [&] { return times_; })
        .rows.front();
  }
  std::size_t done_ = 0;
  std::uint64_t times_ = 0;
};

TEST_F(Stopped, ARepetitionThatAGroupStoppedIsDoneAgain) {
  const Row row = run_with([](std::size_t i) { return i % 2 == 0; });
  EXPECT_EQ(row.samples, (std::vector<double>{10, 10, 10, 10}));
  EXPECT_TRUE(row.flags.empty());
  EXPECT_EQ(done_, 2U * 3 * 4);
}

TEST_F(Stopped, WhereAllAreStoppedTheRowSaysSo) {
  const Row row = run_with([](std::size_t) { return true; });
  EXPECT_EQ(row.samples.size(), 4U);
  EXPECT_TRUE(row.has_flag("throttled"));
  EXPECT_TRUE(row.has_flag("noisy"));
  EXPECT_EQ(done_, 3U * 3 * 4 + 3) << "four tries of each repetition, until that never helped";
}

TEST_F(Stopped, NothingIsTriedAgainWhenTheBudgetIsSpent) {
  options_.budget = std::chrono::nanoseconds{1};
  const Row row = run_with([](std::size_t) { return true; });
  EXPECT_EQ(row.samples.size(), 1U);
  EXPECT_EQ(done_, 3U);
}

TEST_F(Stopped, NothingIsTriedAgainWhenItShallStop) {
  context_.stop = [&] { return done_ > 0; };
  (void)run_with([](std::size_t) { return true; });
  EXPECT_EQ(done_, 3U);
}

TEST_F(Stopped, AMappingThatWasStoppedIsLeftOutWhereThreeOthersRemain) {
  const Row row = run_with([](std::size_t i) { return i < 12; });  // all of the first mapping
  EXPECT_EQ(row.samples, (std::vector<double>{10, 10, 10}));
  EXPECT_FALSE(row.has_flag("throttled"));
}

Trial trial(std::vector<Mapping> mappings) {
  return {.point = point("x", 0, std::chrono::milliseconds{1}), .mappings = std::move(mappings)};
}

TEST(RowOf, LeavesDisturbedMappingsOutWhereThreeQuietOnesRemain) {
  const Row row = row_of(trial({{.value = 10, .check = 0},
                                {.value = 99, .check = 1},
                                {.value = 98, .check = 2},
                                {.value = 11, .check = 3},
                                {.value = 50, .cpu_share = 0.5, .check = 4},
                                {.value = 12, .check = 4}}),
                         {false, false, true, false, false, false});
  EXPECT_EQ(row.samples, (std::vector<double>{10, 11, 12}));
  EXPECT_TRUE(row.flags.empty());
}

TEST(RowOf, FlagsWhatHadNoQuietMoments) {
  const Row row = row_of(trial({{.value = 10, .check = 0},
                                {.value = 20, .check = 1},
                                {.value = 30, .cpu_share = 0.9, .check = 3}}),
                         {false, true, false, false, false});
  EXPECT_EQ(row.samples.size(), 3u);
  EXPECT_EQ(row.flags, std::vector<std::string>{"noisy"});
  const Row one_of_three = row_of(trial({{.value = 10, .check = 0},
                                         {.value = 20, .check = 0},
                                         {.value = 30, .cpu_share = 0.9, .check = 0}}),
                                  {false, false});
  EXPECT_TRUE(one_of_three.flags.empty());
  const Row one_of_two =
      row_of(trial({{.value = 10, .check = 0}, {.value = 20, .cpu_share = 0.9, .check = 0}}),
             {false, false});
  EXPECT_EQ(one_of_two.flags, (std::vector<std::string>{"noisy", "few"}));
}

TEST(RowOf, WhatWasNotSteadyInItsMiddleIsFlagged) {
  const auto row = [](const std::vector<double>& drifts) {
    std::vector<Mapping> mappings;
    for (const double drift : drifts)
      mappings.push_back({.value = 10, .details = {{"drift", drift}}});
    return row_of(trial(std::move(mappings)), {false, false});
  };
  EXPECT_EQ(row({0.2, 0.01, 0.2}).flags, std::vector<std::string>{"unsteady"});
  EXPECT_TRUE(row({0.01, 0.2, kSteady}).flags.empty()) << "one of three";
  EXPECT_TRUE(row_of(trial({{.value = 10}, {.value = 10}, {.value = 10}}), {}).flags.empty());
}

TEST(RowOf, OneMappingThatIsNotAllHugeFlagsTheRow) {
  const auto row = [](std::vector<std::optional<double>> parts) {
    std::vector<Mapping> mappings;
    for (const auto part : parts) mappings.push_back({.value = 10, .huge_part = part});
    return row_of(trial(std::move(mappings)), {false, false});
  };
  EXPECT_TRUE(row({1, 1, 1}).flags.empty());
  EXPECT_EQ(row({1, 1, 1}).details.at("huge_part"), 1);
  EXPECT_EQ(row({1, 0.75, 1}).flags, std::vector<std::string>{"not_huge"});
  EXPECT_EQ(row({0, 0, 1}).details.at("huge_part"), 0);
  const Row base = row({{}, {}, {}});
  EXPECT_TRUE(base.flags.empty() && base.details.empty()) << "asked for none";
}

}  // namespace
}  // namespace headrace::session
