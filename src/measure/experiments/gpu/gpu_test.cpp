// SPDX-License-Identifier: Apache-2.0
#include "measure/experiments/gpu/gpu.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "measure/experiments/gpu/setting.h"
#include "measure/instruments/buffer_pool.h"
#include "tests/support/fake_gpu.h"

namespace headrace::experiment_gpu {

using namespace session;

namespace {

std::vector<Row> rows_on(const Machine& machine, const ParameterChoices& only = {}) {
  std::vector<Row> rows;
  for (const Point& point : kExperiment.points({.machine = machine, .only = only})) {
    EXPECT_EQ(point.prepare == nullptr, !point.row.reason.empty()) << point.row.key();
    rows.push_back(point.row);
  }
  return rows;
}

std::set<std::string> words(const std::vector<Row>& rows, const char* name) {
  std::set<std::string> found;
  for (const Row& row : rows) found.emplace(row.word(name));
  return found;
}

TEST(GpuPoints, AreOfEveryPartDirectionAndWay) {
  const test::FakeGpu fake("devices=2,paradigm=ats");
  const auto rows = rows_on(fake.machine);
  using Words = std::set<std::string>;
  EXPECT_EQ(words(rows, "part"), (Words{"copy", "batch", "fragments", "latency", "allocation"}));
  EXPECT_EQ(words(rows, "direction"), (Words{"to_gpu", "from_gpu", "both", "inside", "across"}));
  EXPECT_EQ(words(rows, "by"), (Words{"engine", "headrace", "batch", "kernel", "prefetch", "cpu",
                                      "placed", "cuMemHostAlloc"}));
  EXPECT_EQ(words(rows, "memory"), (Words{"pinned", "pageable", "managed", "device"}));
  std::set<std::string> keys;
  for (const Row& row : rows) {
    EXPECT_EQ(row.basis, Basis::emulated);
    EXPECT_TRUE(keys.insert(row.key()).second) << row.key();
  }
}

TEST(GpuPoints, AreFewBetweenGpusUnlessTheyAreAskedFor) {
  const test::FakeGpu fake("devices=2");
  const auto across = [&](const ParameterChoices& only) {
    return std::ranges::count_if(rows_on(fake.machine, only),
                                 [](const Row& row) { return row.word("direction") == "across"; });
  };
  EXPECT_EQ(across({}), 2 * 2 * 2) << "each to the other by both, small and large";
  EXPECT_EQ(across({{"node", std::uint64_t{raw(test::kOtherGpu)}}}), 2 * 2 * 6);
}

TEST(GpuPoints, SayWhatThisGpuOrDriverLacks) {
  const test::FakeGpu fake("paradigm=limited", "12.2");
  const auto rows = rows_on(fake.machine);
  const auto reason = [&](const char* by) {
    const auto row = std::ranges::find_if(rows, [&](const Row& r) { return r.word("by") == by; });
    return row == rows.end() ? "no row" : row->reason;
  };
  EXPECT_NE(reason("batch").find("CUDA 12.8"), std::string::npos);
  EXPECT_NE(reason("prefetch").find("does not prefetch"), std::string::npos);
  EXPECT_NE(reason("cpu").find("do not read"), std::string::npos);
  EXPECT_EQ(words(rows, "direction").count("across"), 0U);
}

TEST(GpuPoints, AreOfTheSizesThatAreAskedFor) {
  const test::FakeGpu fake;
  for (const Row& row : rows_on(fake.machine, {{"bytes", std::uint64_t{3 << 20}}})) {
    EXPECT_EQ(*row.number("bytes"), std::uint64_t{3 << 20});
  }
  for (const ParameterChoices& odd :
       {ParameterChoices{{"bytes", std::uint64_t{0}}}, {{"bytes", ~std::uint64_t{0}}}}) {
    for (const Row& row : rows_on(fake.machine, odd)) {
      EXPECT_TRUE(row.has_flag("absent")) << row.key();
    }
  }
}

// Otherwise the latency would be that of a cache: an H100's has 50 MiB.
TEST(GpuPoints, ChaseThroughMoreThanCachesKeep) {
  const test::FakeGpu fake("memory=80G,l2=50M");
  const auto rows = rows_on(fake.machine);
  std::size_t chased = 0;
  std::size_t small = 0;
  for (const Row& row : rows) {
    if (row.word("part") != "latency") continue;
    if (*row.number("bytes") == 2 << 20) {  // beside nvbandwidth's, of the host's memory
      EXPECT_EQ(row.word("direction"), kToGpu) << row.key();
      ++small;
      continue;
    }
    ++chased;
    EXPECT_GE(*row.number("bytes"), 4 * (std::uint64_t{50} << 20)) << row.key();
  }
  EXPECT_GE(chased, 3U);
  EXPECT_GE(small, 1U);
}

// The details that belong to a sample of a row.
void expect_details(const Row& row, const Sample& sample) {
  std::vector<const char*> names;
  if (row.word("part") == "latency") names = {"l2_bytes"};
  if (row.word("part") == "copy" || row.word("part") == "fragments") names = {"cpu_s_per_gb"};
  if (row.word("part") == "batch") names = {"cpu_s_per_gb", "bandwidth"};
  if (row.word("direction") == kBoth) names = {"cpu_s_per_gb", "to_gpu", "from_gpu"};
  for (const char* const name : names) {
    const auto found = sample.details.find(name);
    ASSERT_NE(found, sample.details.end()) << name;
    EXPECT_GT(found->second, 0) << name;
  }
}

// Drivers before 12.8 have no call for a batch, before 12.2 none that prefetches to a location.
TEST(GpuPoints, CanBeMeasuredAsTheyAreListed) {
  for (const char* const version : {"", "12.8", "11.0"}) {
    const test::FakeGpu fake("memory=8M,devices=2,paradigm=ats,sms=2,l2=3M", version);
    const Scope scope{.machine = fake.machine,
                      .only = {{"gpu", std::uint64_t{raw(test::kGpu)}},
                               {"bytes", std::uint64_t{64 << 10}},
                               {"count", std::uint64_t{4}}}};
    instruments::BufferPool pool(fake.machine);
    Random random(1);
    std::set<std::string> parts;
    for (const Point& point : kExperiment.points(scope)) {
      // This host lacks some nodes of the machine.
      const bool here = *point.row.number("node") != raw(test::kHbm);
      if (point.prepare == nullptr || !here || *point.row.number("gpu") != raw(test::kGpu)) {
        continue;
      }
      SCOPED_TRACE(point.row.key() + " " + version);
      const auto probe = point.prepare(pool, random);
      ASSERT_TRUE(probe) << probe.error().message;
      const auto sample = (*probe)->sample();
      ASSERT_TRUE(sample) << sample.error().message;
      EXPECT_GT(sample->value, 0);
      expect_details(point.row, *sample);
      parts.insert(fmt::format("{} {}", point.row.word("part"), point.row.word("direction")));
    }
    EXPECT_EQ(parts,
              (std::set<std::string>{"copy to_gpu", "copy from_gpu", "copy both", "copy inside",
                                     "copy across", "batch to_gpu", "batch from_gpu",
                                     "fragments to_gpu", "fragments from_gpu", "latency to_gpu",
                                     "latency inside", "latency from_gpu", "allocation to_gpu"}));
  }
}

TEST(GpuPoints, WithoutADriverAreOneRowThatSaysSo) {
  const ScopedVariable nowhere("HEADRACE_LIBCUDA", "/nowhere.so");
  const auto rows = rows_on(*Machine::discover());
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_TRUE(rows.front().has_flag("absent"));
  EXPECT_NE(rows.front().reason.find("HEADRACE_LIBCUDA"), std::string::npos);
}

}  // namespace
}  // namespace headrace::experiment_gpu
