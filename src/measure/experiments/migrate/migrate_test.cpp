// SPDX-License-Identifier: Apache-2.0
#include "measure/experiments/migrate/migrate.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>

#include "measure/instruments/worker_pool.h"
#include "measure/session/probe_testing.h"
#include "memory/memory.h"
#include "tests/support/machines.h"

namespace headrace::experiment_migrate {

using namespace session;

namespace {

// On one node only copies can be measured. The guest tests, with several nodes, check that the
// kernel's moves keep every byte and every write.
TEST(MigrateTest, WhatCopiesKeepsEveryByte) {
  const Machine machine = test::small_host();
  BufferPool buffers(machine);
  Random random(1);
  std::set<std::uint64_t> threads;
  std::set<std::string> methods;
  std::optional<std::pair<std::uint64_t, std::uint64_t>> first;
  for (const Point& point : kExperiment.points({machine})) {
    if (!point.row.reason.empty()) continue;
    // The first pair of many nodes and CPUs, by one, two and all.
    const std::uint64_t count = *point.row.number("threads");
    const auto ends = std::pair(*point.row.number("from"), *point.row.number("to"));
    if (first && *first != ends) continue;
    if (count > 2 && count != usable_cpus(machine.find(NodeId{0})).size()) continue;
    first = ends;
    const auto probe = point.prepare(buffers, random);
    // No free huge page.
    if (!probe && probe.error().code == ErrorCode::exhausted) continue;
    ASSERT_TRUE(probe.has_value()) << probe.error().message;
    for (int i = 0; i < 2; ++i) {
      const auto sample = sample_patiently(**probe);
      if (!sample && sample.error().code == ErrorCode::exhausted) continue;
      ASSERT_TRUE(sample.has_value()) << point.row.key() << ": " << sample.error().message;
      methods.emplace(point.row.word("method"));
      for (const std::string_view detail : kExperiment.details) {
        EXPECT_TRUE(sample->details.contains(std::string(detail))) << detail;
      }
      EXPECT_EQ(sample->details.at("stayed"), 0);
      EXPECT_GT(sample->value, 0);
      EXPECT_GT(sample->details.at("copy_share"), 0);
      EXPECT_GT(sample->details.at("cpu_s_per_gb"), 0);
      const bool huge = point.row.word("pages") == "huge";
      EXPECT_EQ(sample->huge_part.has_value(), huge) << "what the session decides by";
      const double page = static_cast<double>((huge ? huge_page() : base_page()).value);
      EXPECT_LE(sample->details.at("first_batch_ns") * 0.999,
                sample->details.at("per_page_ns") *
                    static_cast<double>(*point.row.number("bytes")) / page);
    }
    threads.insert(*point.row.number("threads"));
  }
  EXPECT_TRUE(threads.contains(1));
  EXPECT_TRUE(threads.contains(2) || usable_cpus().size() < 2);
  EXPECT_TRUE(methods.contains("copy") && methods.contains("remap"));
}

// Points of two memories and `cpus` CPUs, which are not on this host.
std::vector<Point> points_of(unsigned cpus, Bytes capacity, const ParameterChoices& only = {}) {
  static Machine machine;  // points name its nodes
  CpuSet all;
  for (unsigned cpu = 0; cpu < cpus; ++cpu) all.push_back(cpu);
  machine = test::machine_of({all, {}}, 0, capacity);
  machine.nodes[1].kind = NodeKind::hbm;
  machine.caches = {{.level = 3, .size = 24_MiB, .cpus = all}};
  const AsIfUsable as_if(all);
  return kExperiment.points({.machine = machine, .only = only, .here = false});
}

// A batch of at least all pages of a thread is `all`, so no two points are the same.
TEST(MigrateTest, NoTwoPointsDoTheSame) {
  std::set<std::tuple<std::string, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t,
                      std::uint64_t>>
      seen;
  std::set<std::uint64_t> batches;
  for (const Point& point : points_of(6, 64_GiB, {{"from", std::uint64_t{0}}})) {
    const Row& row = point.row;
    ASSERT_TRUE(row.number("bytes")) << row.key();
    const std::uint64_t page = (row.word("pages") == "huge" ? huge_page() : base_page()).value;
    const std::uint64_t threads = *row.number("threads");
    const std::uint64_t part = (*row.number("bytes") / page + threads - 1) / threads;
    const std::uint64_t* const batch = row.number("batch");
    if (batch != nullptr) {
      EXPECT_LT(*batch, part) << row.key();
      batches.insert(*batch);
    }
    const std::uint64_t pages_a_call = batch == nullptr ? part : *batch;
    EXPECT_TRUE(seen.emplace(std::string(row.word("method")), *row.number("from"), page, threads,
                             *row.number("bytes"), pages_a_call)
                    .second)
        << row.key();
  }
  for (const std::uint64_t batch : {1U, 8U, 64U, 512U}) EXPECT_TRUE(batches.contains(batch));
}

TEST(MigrateTest, SizesAreThoseOfCopiesAndFitTheNodes) {
  const auto sizes = [](const std::vector<Point>& points) {
    std::set<std::uint64_t> found;
    for (const Point& point : points) {
      if (point.row.reason.empty()) found.insert(*point.row.number("bytes"));
    }
    return found;
  };
  EXPECT_EQ(sizes(points_of(4, 64_GiB)), (std::set{(1_MiB).value, (4_MiB).value, (16_MiB).value,
                                                   (64_MiB).value, (256_MiB).value}));
  const std::vector<Point> small = points_of(4, 256_MiB);
  EXPECT_EQ(sizes(small), (std::set{(1_MiB).value, (4_MiB).value, (16_MiB).value}));
  for (const Point& point : small) {
    if (!point.row.reason.empty()) continue;
    EXPECT_TRUE(point.row.has_flag("shrunk")) << point.row.key();
    EXPECT_LE(point.setup.cost, touching(16_MiB, 4)) << "what is swept fits too";
  }
  EXPECT_EQ(sizes(points_of(4, 64_GiB, {{"bytes", (1_GiB).value}})), std::set{(1_GiB).value});
}

TEST(MigrateTest, ManyThreadsHaveAHugePageEach) {
  std::set<std::uint64_t> sizes;
  for (const Point& point : points_of(96, 512_GiB)) {
    const std::uint64_t* const threads = point.row.number("threads");
    ASSERT_TRUE(threads) << point.row.key();
    EXPECT_EQ(point.row.reason, "") << point.row.key();
    if (*threads == 96 && point.row.word("pages") == "huge") {
      sizes.insert(*point.row.number("bytes"));
    }
  }
  EXPECT_EQ(sizes.contains((64_MiB).value), huge_page() * 96 <= 64_MiB);
  EXPECT_TRUE(sizes.contains((256_MiB).value) || huge_page() != 2_MiB);
}

// Movers use all cores before second threads, and one thread more than control groups allow is
// refused.
TEST(MigrateTest, MoversAreSpreadAndTheObserverIsNamed) {
  Machine machine = test::machine_of({{0, 1, 2, 3}, {}});
  machine.nodes[1].kind = NodeKind::hbm;
  for (const CpuSet& core : {CpuSet{0, 1}, CpuSet{2, 3}}) {
    machine.caches.push_back({.level = 1, .size = 32_KiB, .cpus = core});
  }
  const AsIfUsable as_if({0, 1, 2, 3});
  const auto cpus_by_threads = [&](std::optional<std::size_t> most) {
    std::map<std::uint64_t, std::set<std::string>> found;
    const Scope scope{.machine = machine, .here = false, .most_threads = most};
    for (const Point& point : kExperiment.points(scope)) {
      if (point.row.reason.empty()) {
        found[*point.row.number("threads")].insert(point.row.cpus);
      }
    }
    return found;
  };
  using ByThreads = std::map<std::uint64_t, std::set<std::string>>;
  EXPECT_EQ(cpus_by_threads(std::nullopt), (ByThreads{{1, {"0,2"}}, {2, {"0-2"}}, {4, {"0-3"}}}));
  EXPECT_EQ(cpus_by_threads(2), (ByThreads{{1, {"0,2"}}, {2, {"0,2"}}, {4, {"0-3"}}}));
}

TEST(MigrateTest, WhatIsMovedIsColdByFourTimesTheCaches) {
  for (const Point& point : points_of(4, 64_GiB)) {
    if (!point.row.reason.empty()) continue;
    EXPECT_EQ(point.setup.name, "swept " + std::to_string((96_MiB).value));
    EXPECT_FALSE(point.row.has_flag("shrunk")) << point.row.key();
  }
}

TEST(MigrateTest, PagesThatCannotBeSharedAreAReason) {
  for (const std::uint64_t bytes : {std::uint64_t{5000}, base_page().value}) {
    std::size_t told = 0;
    for (const Point& point : points_of(4, 64_GiB, {{"bytes", bytes}})) {
      if (point.row.reason.empty()) continue;
      EXPECT_NE(point.row.reason.find("no whole pages of"), std::string::npos);
      ++told;
    }
    EXPECT_GT(told, 0u);
  }
  std::size_t too_large = 0;
  for (const Point& point : points_of(4, 256_MiB, {{"bytes", (1_GiB).value}})) {
    EXPECT_EQ(point.row.reason, "a node is too small for this size");
    ++too_large;
  }
  EXPECT_GT(too_large, 0u);
}

}  // namespace
}  // namespace headrace::experiment_migrate
