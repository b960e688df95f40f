// SPDX-License-Identifier: Apache-2.0
#include "measure/experiments/idle_cycle.h"

#include <gtest/gtest.h>

#include "measure/experiments/experiments.h"
#include "measure/instruments/chase.h"
#include "measure/instruments/worker_pool.h"
#include "measure/session/probe_testing.h"
#include "tests/support/machines.h"

namespace headrace::session {
namespace {

TEST(IdleCycle, GoesThroughAllOfItAndIsLinkedOnce) {
  const Machine machine = Machine::discover().value();
  const MemoryKey memory{machine.nodes.front().id};
  const unsigned cpu = usable_cpus().front();
  BufferPool buffers(machine);
  Random random(1);
  const auto cycle = idle_cycle(buffers, random, memory, 64_KiB, cpu);
  ASSERT_TRUE(cycle) << cycle.error().message;
  EXPECT_EQ(cycle->memory.size(), 64u << 10);
  constexpr std::size_t kLines = (64 << 10) / kLine;
  EXPECT_EQ(chase(cycle->at, kLines), cycle->at);
  EXPECT_NE(chase(cycle->at, kLines / 2), cycle->at);
  cycle->at = chase(cycle->at, 160);
  const auto again = idle_cycle(buffers, random, memory, 64_KiB, cpu);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->memory.data(), cycle->memory.data());
  EXPECT_EQ(index_in_cycle(again->at), 160U) << "it goes on where the first ended";
#if defined(__x86_64__) || defined(__aarch64__)
  EXPECT_EQ(cycle->dropped, kLines) << "else a chase would begin with what linking left in caches";
  EXPECT_EQ(again->dropped, kLines) << "and the next one with what the first left there";
#endif
  EXPECT_GT(idle_cycle_setup(128_MiB).cost, idle_cycle_setup(64_MiB).cost);
}

TEST(IdleCycle, EachSizeHasItsOwn) {
  const Machine machine = test::small_host();
  const MemoryKey memory{machine.nodes.front().id};
  const unsigned cpu = usable_cpus().front();
  BufferPool buffers(machine);
  Random random(1);
  for (const Bytes bytes : {128_KiB, 64_KiB}) {
    const auto cycle = idle_cycle(buffers, random, memory, bytes, cpu);
    ASSERT_TRUE(cycle) << cycle.error().message;
    const std::size_t lines = bytes.value / kLine;
    EXPECT_EQ(chase(cycle->at, lines), cycle->at) << bytes.value;
    EXPECT_NE(chase(cycle->at, lines / 2), cycle->at) << bytes.value;
  }
}

// The load must be the only difference.
TEST(IdleCycle, IsThatOfTheLoadedLatency) {
  const Machine machine = test::small_host();
  const auto loaded = experiment_loaded::kExperiment.points({machine});
  if (!loaded.front().row.reason.empty()) GTEST_SKIP() << loaded.front().row.reason;
  const ParameterChoices whole = {{"window", "all"}, {"pages", "huge"}};
  const Scope scope{machine, whole};
  const Point* idle = nullptr;
  const auto points = experiment_latency::kExperiment.points(scope);
  for (const Point& point : points) {
    if (idle == nullptr && point.of_matrix && point.memory == loaded.front().memory) idle = &point;
  }
  ASSERT_NE(idle, nullptr);
  BufferPool buffers(machine);
  Random random(1);
  ASSERT_TRUE(idle->prepare(buffers, random));
  const auto probe = loaded.front().prepare(buffers, random);
  ASSERT_TRUE(probe);
  // A second cycle would have drawn random numbers for its order.
  Random once(1);
  BufferPool others(machine);
  ASSERT_TRUE(idle->prepare(others, once));
  EXPECT_EQ(random(), once());
  const auto idle_probe = idle->prepare(others, once);
  ASSERT_TRUE(idle_probe);
  const auto alone = sample_patiently(**idle_probe);
  const auto beside = sample_patiently(**probe);
  ASSERT_TRUE(alone && beside) << "too busy";
  EXPECT_EQ(alone->words.at("observer"), beside->words.at("observer"));
}

}  // namespace
}  // namespace headrace::session
