// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "headrace/backend.h"
#include "tests/support/machines.h"

namespace headrace {
namespace {

TEST(OpenBackends, DriveTheCoresAndTheDisk) {
  const Machine machine = test::small_machine();
  const auto backends = Backends::open(machine);
  ASSERT_TRUE(backends) << backends.error().message;
  EXPECT_TRUE(backends->skipped().empty()) << backends->skipped().front();
  for (const Engine& engine : machine.engines) {
    Backend* backend = backends->find(engine.id);
    ASSERT_NE(backend, nullptr) << engine.name;
    const auto& driven = backend->capabilities().engines;
    EXPECT_NE(std::ranges::find(driven, engine.id), driven.end()) << engine.name;
  }
  EXPECT_EQ(backends->find(test::kCpuA), backends->find(test::kCpuB));
  EXPECT_NE(backends->find(test::kCpuA), backends->find(test::kSsd));
  EXPECT_EQ(backends->find(EngineId{3}), nullptr);
}

TEST(OpenBackends, LeaveOutWhatNobodyDrivesAndSayWhy) {
  Machine machine = test::small_machine();
  machine.engines.push_back({.id = EngineId{3},
                             .kind = EngineKind::dsa,
                             .name = "dsa0",
                             .home = test::kDram,
                             .reason = "test"});
  machine.engines.push_back({.id = EngineId{4},
                             .kind = EngineKind::migrate,
                             .name = "kernel",
                             .home = test::kDram,
                             .reason = "test"});
  const auto backends = Backends::open(machine);
  ASSERT_TRUE(backends) << backends.error().message;
  EXPECT_EQ(backends->find(EngineId{3}), nullptr);
  EXPECT_EQ(backends->find(EngineId{4}), nullptr);
  EXPECT_NE(backends->find(test::kCpuA), nullptr);
  ASSERT_EQ(backends->skipped().size(), 2U);
  EXPECT_TRUE(backends->skipped()[0].starts_with("dsa0 (dsa): ")) << backends->skipped()[0];
  EXPECT_TRUE(backends->skipped()[1].starts_with("kernel (migrate): ")) << backends->skipped()[1];
}

TEST(OpenBackends, AMachineWithoutEnginesHasNone) {
  Machine machine = test::small_machine();
  machine.engines.clear();
  const auto backends = Backends::open(machine);
  ASSERT_TRUE(backends);
  EXPECT_TRUE(backends->all().empty());
  EXPECT_TRUE(backends->skipped().empty());
}

}  // namespace
}  // namespace headrace
