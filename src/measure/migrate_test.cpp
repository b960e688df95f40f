#include <gtest/gtest.h>

#include "measure/experiment.h"

namespace headrace {
namespace {

// On one node only what copies can be measured; that the kernel's moves keep every byte and every
// write is checked in the guest, where there are nodes to move between.
TEST(MigrateTest, WhatCopiesKeepsEveryByte) {
  const Machine machine = Machine::discover().value();
  Arenas arenas(machine);
  Random random(1);
  std::size_t measured = 0;
  for (const Point& point : migrate_points({machine})) {
    if (!point.row.reason.empty()) {
      EXPECT_NE(point.row.reason.find("one memory node"), std::string::npos);
      continue;
    }
    if (point.rank > 2) continue;
    const auto probe = point.prepare(arenas, random);
    ASSERT_TRUE(probe.has_value()) << probe.error().message;
    for (int i = 0; i < 2; ++i) {
      const auto sample = (*probe)->sample();
      ASSERT_TRUE(sample.has_value()) << point.row.key() << ": " << sample.error().message;
      EXPECT_GT(sample->value, 0);
      EXPECT_GT(sample->details.at("per_page_ns"), 0);
      const double page = point.row.word("pages") == "huge" ? 2 << 20 : 4096;
      EXPECT_LE(sample->details.at("first_batch_ns") * 0.999,
                sample->details.at("per_page_ns") * (32 << 20) / page);
    }
    ++measured;
  }
  EXPECT_GT(measured, 0u);
}

}  // namespace
}  // namespace headrace
