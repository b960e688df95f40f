#include "headrace/measure.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "measure/carry.h"
#include "measure/fit.h"
#include "measure/samples.h"
#include "measure/team.h"
#include "measure/walk.h"

namespace headrace {
namespace {

constexpr Nanoseconds kSmoke = std::chrono::microseconds{50};

Machine here() {
  auto machine = Machine::discover({.storage = {std::filesystem::temp_directory_path()}});
  EXPECT_TRUE(machine) << machine.error().message;
  return std::move(*machine);
}

TEST(FitCost, FindsTheLineThroughTwoPoints) {
  const CopyCost cost = fit_cost(Bytes{1000}, Nanoseconds{1500}, Bytes{11000}, Nanoseconds{6500});
  EXPECT_DOUBLE_EQ(cost.bandwidth.value, 2e9);
  EXPECT_EQ(cost.latency, Nanoseconds{1000});
}

TEST(FitCost, NeverGivesANegativeLatencyOrBandwidth) {
  const CopyCost cached = fit_cost(Bytes{1000}, Nanoseconds{1}, Bytes{2000}, Nanoseconds{1000});
  EXPECT_EQ(cached.latency, Nanoseconds{0});
  EXPECT_DOUBLE_EQ(cached.bandwidth.value, 2e9);
  const CopyCost odd = fit_cost(Bytes{1000}, Nanoseconds{900}, Bytes{2000}, Nanoseconds{800});
  EXPECT_EQ(odd.latency, Nanoseconds{0});
  EXPECT_DOUBLE_EQ(odd.bandwidth.value, 2.5e9);
}

TEST(Samples, SummarizesByTheMedianAndComparesRoundByRound) {
  const std::vector<double> own{10, 20, 30};
  const auto summary = summarize_rates(own);
  ASSERT_TRUE(summary);
  EXPECT_DOUBLE_EQ(summary->rate.value, 20);
  EXPECT_DOUBLE_EQ(summary->spread, 0.5);
  EXPECT_FALSE(summarize_rates({}));
  const std::vector<double> reference{10, 10, 30};
  EXPECT_DOUBLE_EQ(*paired_ratio(own, reference), 1.0);
  EXPECT_FALSE(paired_ratio(own, std::vector<double>{1.0}));
}

TEST(Team, RunsEachPartOnce) {
  const CpuSet cpus = usable_cpus();
  ASSERT_FALSE(cpus.empty());
  std::vector<int> runs(cpus.size(), 0);
  ASSERT_TRUE(run_pinned(cpus, [&](std::size_t i) { ++runs[i]; }));
  EXPECT_EQ(std::ranges::count(runs, 1), static_cast<std::ptrdiff_t>(runs.size()));
}

CopyBenchOptions smoke() { return {.sizes = {64_B, 300_KiB}, .rounds = 3, .per_sample = kSmoke}; }

TEST(BenchCopy, GivesARowPerEngineSizeAndState) {
  const auto rows = bench_copy(here(), smoke());
  ASSERT_TRUE(rows) << rows.error().message;
  EXPECT_EQ(rows->size(), 2 * 2 * (copy_kernels().size() + 2));
  for (const CopyRow& row : *rows) {
    SCOPED_TRACE(row.engine + " " + to_string(row.bytes) + " " + row.state);
    EXPECT_EQ(row.reason, "");
    ASSERT_TRUE(row.bytes_per_second);
    EXPECT_GT(row.bytes_per_second->value, 0);
    EXPECT_TRUE(row.spread);
    ASSERT_TRUE(row.ratio_to_memcpy);
    if (row.engine == "memcpy") {
      EXPECT_DOUBLE_EQ(*row.ratio_to_memcpy, 1.0);
    }
  }
}

TEST(BenchCopy, RunsMemcpyAlongForTheRatio) {
  auto options = smoke();
  options.engines = {"cpu"};
  options.cold = false;
  const auto rows = bench_copy(here(), options);
  ASSERT_TRUE(rows);
  ASSERT_EQ(rows->size(), 2U);
  EXPECT_TRUE((*rows)[0].ratio_to_memcpy);
}

TEST(BenchCopy, SaysInTheRowWhatCouldNotBeMeasured) {
  auto options = smoke();
  options.sizes = {64_B};
  options.hot = false;
  options.engines = {"memcpy", "mmx"};
  auto rows = bench_copy(here(), options);
  ASSERT_TRUE(rows);
  EXPECT_TRUE((*rows)[0].bytes_per_second);
  EXPECT_FALSE((*rows)[1].bytes_per_second);
  EXPECT_NE((*rows)[1].reason.find("no copy engine mmx"), std::string::npos) << (*rows)[1].reason;

  options.threads = {1000000};
  rows = bench_copy(here(), options);
  ASSERT_TRUE(rows);
  EXPECT_FALSE((*rows)[0].bytes_per_second);
  EXPECT_NE((*rows)[0].reason.find("1000000 threads"), std::string::npos) << (*rows)[0].reason;
}

TEST(BenchCopy, AddsUpSeveralThreads) {
  auto options = smoke();
  options.threads = {static_cast<unsigned>(usable_cpus().size())};
  options.engines = {"memcpy", "cpu"};
  options.sizes = {64_KiB};
  const auto rows = bench_copy(here(), options);
  ASSERT_TRUE(rows);
  ASSERT_EQ(rows->size(), 4U);
  for (const CopyRow& row : *rows) EXPECT_TRUE(row.bytes_per_second) << row.reason;
}

TEST(BenchCopy, StopsBetweenPointsAndKeepsItsRows) {
  std::size_t points = 0;
  const ExperimentContext context{
      .stop = [&] { return points == 1; },
      .progress =
          [&](std::size_t done, std::size_t total) {
            points = done;
            EXPECT_EQ(total, 4U);
          },
  };
  auto options = smoke();
  options.engines = {"memcpy"};
  const auto rows = bench_copy(here(), options, context);
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows->size(), 1U);
}

TEST(BenchCopy, RefusesNonsense) {
  for (auto options : {CopyBenchOptions{.sizes = {0_B}}, CopyBenchOptions{.threads = {0}},
                       CopyBenchOptions{.rounds = 0}}) {
    const auto refused = bench_copy(here(), options);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::invalid);
  }
}

// A directory of its own, empty at the end as at the start.
class Directory {
 public:
  Directory() {
    std::string path = (std::filesystem::temp_directory_path() / "headrace-test-XXXXXX").string();
    path_ = mkdtemp(path.data());
  }
  ~Directory() {
    EXPECT_TRUE(std::filesystem::is_empty(path_)) << "a measuring file was left behind";
    std::filesystem::remove_all(path_);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

TEST(MeasureBriefly, GivesRowsForMemoryAndDiskAndRatesForBoth) {
  const Directory directory;
  auto machine = Machine::discover({.storage = {directory.path()}});
  ASSERT_TRUE(machine);
  const auto backends = Backends::open(*machine);
  ASSERT_TRUE(backends);
  std::size_t last = 0;
  const ExperimentContext context{.progress = [&](std::size_t done, std::size_t) { last = done; }};
  const auto rows = measure_briefly(*machine, *backends, directory.path(), context);
  ASSERT_TRUE(rows);
  EXPECT_GT(last, 0U);
  for (const char* what : {"memory read", "memory write", "memory copy", "disk read", "copy"}) {
    EXPECT_TRUE(std::ranges::count(*rows, what, &RateRow::what) > 0) << what;
  }
  for (const RateRow& row : *rows) {
    EXPECT_NE(row.bytes_per_second.has_value(), !row.reason.empty()) << row.what << row.where;
  }
  for (const CopyRate& rate : machine->copy_rates) {
    EXPECT_GT(rate.bandwidth.value, 0);
    EXPECT_GE(rate.latency, Nanoseconds{0});
  }
  EXPECT_FALSE(machine->copy_rates.empty());
  for (const Node& node : machine->nodes) {
    if (!node.byte_addressable() || node.capacity == Bytes{0}) continue;
    const auto measured = std::ranges::find(node.access, true, &AccessAttributes::measured);
    ASSERT_NE(measured, node.access.end());
    EXPECT_GT(measured->read_bandwidth->value, 0);
  }
}

TEST(MeasureBriefly, RefusesAnotherMachine) {
  auto machine = Machine::load("xeon-max");
  ASSERT_TRUE(machine);
  EXPECT_EQ(measure_briefly(*machine, Backends{}, "/").error().code, ErrorCode::unsupported);
  EXPECT_EQ(bench_copy(*machine, {}).error().code, ErrorCode::unsupported);
}

TEST(MeasureBriefly, SaysWhyThereIsNoDiskRateAndGoesOn) {
  Machine machine = here();
  const auto backends = Backends::open(machine);
  ASSERT_TRUE(backends);
  const auto rows = measure_briefly(machine, *backends, "/no/such/directory");
  ASSERT_TRUE(rows);
  const auto disk = std::ranges::find(*rows, "disk read", &RateRow::what);
  ASSERT_NE(disk, rows->end());
  EXPECT_NE(disk->reason.find("/no/such/directory"), std::string::npos) << disk->reason;
  EXPECT_TRUE(std::ranges::any_of(*rows, [](auto& row) { return row.what == "memory copy"; }));
}

TEST(MeasureBriefly, StopsAtOnceWhenAskedTo) {
  Machine machine = here();
  const auto rows = measure_briefly(machine, Backends{}, "/", {.stop = [] { return true; }});
  ASSERT_TRUE(rows);
  EXPECT_TRUE(rows->empty());
}

// Refuses everything, or fails every second piece.
class Broken final : public Backend {
 public:
  explicit Broken(bool refuses) : refuses_(refuses) {}
  const Capabilities& capabilities() const override { return capabilities_; }
  Result<std::size_t> submit(std::span<const Piece> pieces, Completion& completion) override {
    if (refuses_) return std::unexpected(Error{ErrorCode::unsupported, "not mine"});
    const Status failed = std::unexpected(Error{ErrorCode::io, "broken"});
    completion.complete(pieces[0].tag, pieces[0].tag % 2 == 0 ? Status{} : failed);
    return 1;
  }

 private:
  const bool refuses_;
  const Capabilities capabilities_{.name = "broken"};
};

TEST(Carry, HandsUpRefusalsAndFailures) {
  std::byte bytes[64] = {};
  const MemoryRange range(bytes, NodeId{0});
  const Extent all{&range, 0, 32_B};
  const Extent rest{&range, 32, 32_B};
  const auto pieces = cut(rest, all, EngineId{0}, 10_B);
  ASSERT_EQ(pieces.size(), 4U);
  EXPECT_EQ(pieces[3].from.length, 2_B);
  Broken refuses(true);
  Broken fails(false);
  EXPECT_EQ(carry(refuses, pieces, 2).error().code, ErrorCode::unsupported);
  EXPECT_EQ(carry(fails, pieces, 2).error().code, ErrorCode::io);
  EXPECT_TRUE(carry(fails, std::span(pieces).first(1), 1));
}

}  // namespace
}  // namespace headrace
