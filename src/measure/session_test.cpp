// The session on points that measure nothing: what is chosen, how often, and what becomes of it.
#include "measure/session.h"

#include <gtest/gtest.h>

#include <numeric>

namespace headrace {
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
  made.prepare = [&script](Arenas&, Random&) -> Result<std::unique_ptr<Probe>> {
    const double value = script.values[script.prepared++ % script.values.size()];
    if (value == kBusy) return std::unexpected(Error{ErrorCode::timed_out, "busy"});
    if (value < 0) return std::unexpected(Error{ErrorCode::io, "told to"});
    return std::make_unique<Scripted>(value);
  };
  return made;
}

TEST(LeaveOut, KeepsWhatIsWantedMostAndSaysSo) {
  std::vector<Point> points = {
      point("a", 2, std::chrono::seconds{1}), point("b", 0, std::chrono::seconds{1}),
      point("c", 1, std::chrono::seconds{1}), point("d", 0, std::chrono::seconds{1})};
  points.push_back(without({.experiment = "e"}, "absent"));
  leave_out(points, std::chrono::seconds{8});  // 6.8 s for points: two of 3 s
  EXPECT_NE(points[0].row.reason.find("left out: a budget of 8 s"), std::string::npos);
  EXPECT_EQ(points[1].row.reason, "");
  EXPECT_NE(points[2].row.reason, "");
  EXPECT_EQ(points[3].row.reason, "");
  EXPECT_EQ(points[4].row.reason, "absent");
  std::vector<Point> all = {point("a", 9, std::chrono::seconds{1000})};
  leave_out(all, std::nullopt);
  EXPECT_EQ(all[0].row.reason, "");
}

class SessionTest : public testing::Test {
 protected:
  std::vector<Row> run(std::vector<Point> points) {
    return run_session(machine_, std::move(points), options_, context_).rows;
  }
  // Without nodes: no sentinels, whose time the test need not take.
  Machine machine_;
  MeasureOptions options_{.budget = std::nullopt};
  ExperimentContext context_;
};

TEST_F(SessionTest, ABusyMomentIsTriedAgainButNotForEver) {
  Script once{.values = {kBusy, 10, 10, kBusy, 10}};
  Script always{.values = {kBusy}};
  Script later{.values = {10, 10, kBusy, kBusy, kBusy}};
  const auto rows =
      run({scripted("once", once), scripted("always", always), scripted("later", later)});
  EXPECT_EQ(rows[0].samples, (std::vector<double>{10, 10, 10}));
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
  EXPECT_EQ(steady.prepared, 3u);
  EXPECT_EQ(rows[0].samples, std::vector<double>(3, 10));
  EXPECT_EQ(rows[0].value->median, 10);
  EXPECT_EQ(rows[0].details.at("d"), 10);
  EXPECT_EQ(loud.prepared, 9u) << "as often as it is allowed";
  EXPECT_EQ(rows[1].samples.size(), 9u);
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

TEST_F(SessionTest, StoppedItKeepsWhatItHas) {
  Script one{.values = {10}};
  Script two{.values = {10}};
  std::size_t measured = 0;
  context_.stop = [&] { return measured >= 1; };
  context_.progress = [&](std::size_t, std::size_t) { ++measured; };
  const auto rows = run({scripted("one", one), scripted("two", two)});
  EXPECT_EQ(one.prepared + two.prepared, 1u);
  const Row& rest = rows[0].value ? rows[1] : rows[0];
  EXPECT_EQ(rest.reason, "stopped before it was measured");
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
  EXPECT_EQ(told.back(), std::pair(std::size_t{9}, std::size_t{9}));
}

Trial trial(std::vector<Mapping> mappings) {
  return {.point = point("x", 0, std::chrono::milliseconds{1}), .mappings = std::move(mappings)};
}

TEST(RowOf, LeavesDisturbedMappingsOutWhereThreeQuietOnesRemain) {
  const Row row = row_of(trial({{.value = 10, .look = 0},
                                {.value = 99, .look = 1},
                                {.value = 98, .look = 2},
                                {.value = 11, .look = 3},
                                {.value = 50, .cpu_share = 0.5, .look = 4},
                                {.value = 12, .look = 4}}),
                         {false, false, true, false, false, false});
  EXPECT_EQ(row.samples, (std::vector<double>{10, 11, 12}));
  EXPECT_TRUE(row.flags.empty());
}

TEST(RowOf, FlagsWhatHadNoQuietMoments) {
  const Row row = row_of(trial({{.value = 10, .look = 0},
                                {.value = 20, .look = 1},
                                {.value = 30, .cpu_share = 0.9, .look = 3}}),
                         {false, true, false, false, false});
  EXPECT_EQ(row.samples.size(), 3u);
  EXPECT_EQ(row.flags, std::vector<std::string>{"noisy"});
  const Row one_of_three = row_of(trial({{.value = 10, .look = 0},
                                         {.value = 20, .look = 0},
                                         {.value = 30, .cpu_share = 0.9, .look = 0}}),
                                  {false, false});
  EXPECT_TRUE(one_of_three.flags.empty());
}

}  // namespace
}  // namespace headrace
