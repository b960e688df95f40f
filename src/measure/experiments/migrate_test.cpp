#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <string>

#include "measure/experiments/experiments.h"
#include "measure/instruments/worker_pool.h"

namespace headrace::experiment_migrate {

using namespace session;

namespace {

// On one node only what copies can be measured; that the kernel's moves keep every byte and every
// write is checked in the guest, where there are nodes to move between.
TEST(MigrateTest, WhatCopiesKeepsEveryByte) {
  const Machine machine = Machine::discover().value();
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
    ASSERT_TRUE(probe.has_value()) << probe.error().message;
    for (int i = 0; i < 2; ++i) {
      const auto sample = (*probe)->sample();
      // No huge pages in one piece.
      if (!sample && sample.error().code == ErrorCode::exhausted) continue;
      ASSERT_TRUE(sample.has_value()) << point.row.key() << ": " << sample.error().message;
      methods.emplace(point.row.word("method"));
      EXPECT_EQ(sample->details.at("stayed"), 0);
      EXPECT_GT(sample->value, 0);
      EXPECT_GT(sample->details.at("per_page_ns"), 0);
      const double page = point.row.word("pages") == "huge" ? 2 << 20 : 4096;
      EXPECT_LE(sample->details.at("first_batch_ns") * 0.999,
                sample->details.at("per_page_ns") * (32 << 20) / page);
    }
    threads.insert(*point.row.number("threads"));
  }
  EXPECT_TRUE(threads.contains(1));
  EXPECT_TRUE(threads.contains(2) || usable_cpus().size() < 2);
  EXPECT_TRUE(methods.contains("copy") && methods.contains("remap"));
}

}  // namespace
}  // namespace headrace::experiment_migrate
