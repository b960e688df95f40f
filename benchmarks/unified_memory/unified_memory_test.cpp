// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/unified_memory/unified_memory.h"

#include <gtest/gtest.h>

#include "core/affinity.h"
#include "measure/instruments/gpu/managed_memory.h"
#include "tests/support/fake_gpu.h"

namespace headrace {
namespace {

Result<UnifiedMemoryResult> run(const UnifiedMemoryCase& asked,
                                const ExperimentContext& context = {}) {
  return run_unified_memory(*Machine::discover(), asked, context);
}

void expect_right(const UnifiedMemoryCase& asked) {
  const auto result = run(asked);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_TRUE(result->emulated);
  EXPECT_EQ(result->runs.size(), asked.runs);
  EXPECT_TRUE(result->written);
  for (const UnifiedMemoryRun& each : result->runs) {
    EXPECT_TRUE(each.correct);
    EXPECT_GT(each.time.count(), 0);
  }
}

TEST(UnifiedMemory, ReadsAndWritesWhatIsThere) {
  const test::FakeGpu fake("memory=64M,paradigm=ats,sms=4");
  for (const bool managed : {true, false}) {
    for (const bool write : {false, true}) {
      for (const bool wide : {false, true}) {
        expect_right({.size = 3_MiB,
                      .managed = managed,
                      .touch_on_host = wide,
                      .write = write,
                      .runs = 2,
                      .wide = wide});
      }
    }
  }
}

TEST(UnifiedMemory, PrefetchesInBlocksOnStreams) {
  const test::FakeGpu fake("memory=64M,paradigm=managed,sms=4");
  for (const unsigned streams : {1U, 2U, 3U}) {
    for (const bool write : {false, true}) {
      expect_right(
          {.size = 5_MiB, .write = write, .runs = 2, .prefetch_block = 2_MiB, .streams = streams});
    }
  }
}

TEST(UnifiedMemory, SaysWhatIsInFlight) {
  const test::FakeGpu fake("memory=64M,sms=80");
  const auto result = run({.size = 1_MiB, .runs = 1});
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->blocks, 160U);
  EXPECT_EQ(result->threads_per_block, 128U);
  EXPECT_EQ(result->in_flight, 80_KiB);
  EXPECT_EQ(result->paradigm, GpuParadigm::managed);
  // 58 registers per thread: 4 blocks of 256 per multiprocessor.
  const auto wide = run({.size = 1_MiB, .runs = 1, .wide = true});
  EXPECT_EQ(wide->blocks, 320U);
  EXPECT_EQ(wide->in_flight, 64_B * (80 * 1024));
  const auto writes = run({.size = 1_MiB, .write = true, .runs = 1, .wide = true});
  EXPECT_EQ(writes->in_flight, 16_B * (80 * 2048));
}

TEST(UnifiedMemory, MemoryOfOtherUsers_LowersTheLimit) {
  const test::FakeGpu fake("memory=64M,paradigm=managed,sms=4");
  const auto machine = Machine::discover();
  const auto room = [&] { return unified_memory_gpu(*machine, 0).value().managed_bytes; };
  const Bytes alone = room();
  EXPECT_LE(alone, 56_MiB) << "an eighth is spared";
  const auto other = allocate(fake.machine, 32_MiB, Placement::on(test::kGpu));
  ASSERT_TRUE(other) << other.error().message;
  EXPECT_LE(room(), alone - 32_MiB);
  const auto outcome = [](Bytes size) { return run({.size = size, .runs = 1}); };
  const Bytes fits{room().value / (1_MiB).value * (1_MiB).value};
  EXPECT_TRUE(outcome(fits));
  EXPECT_EQ(outcome(fits + 1_MiB).error().code, ErrorCode::exhausted);
}

// The thread that runs it touches the host's memory first.
TEST(UnifiedMemory, RunsOnCpusOfTheNodeThatIsAskedForOrTheNearest) {
  const test::FakeGpu fake("memory=64M,paradigm=managed,sms=4");
  const std::vector<unsigned> all = allowed_cpus();
  Machine machine = *Machine::discover();
  Node other = machine.nodes.front();
  const NodeId near = other.id;
  other.id = NodeId{7};
  machine.nodes.front().cpus = {all.front()};
  other.cpus = {all.back()};
  machine.nodes.push_back(other);
  other.id = NodeId{9};
  other.cpus = {};
  machine.nodes.push_back(other);
  const auto ran_on = [&](std::optional<NodeId> node) {
    std::vector<unsigned> cpus;
    const auto result =
        run_unified_memory(machine, {.size = 1_MiB, .node = node, .runs = 1}, {.stop = [&] {
                             cpus = allowed_cpus();
                             return false;
                           }});
    EXPECT_TRUE(result) << result.error().message;
    EXPECT_EQ(allowed_cpus(), all);
    return std::pair(result->node, cpus);
  };
  EXPECT_EQ(ran_on({}), std::pair(std::optional(near), std::vector{all.front()}));
  EXPECT_EQ(ran_on(NodeId{7}), std::pair(std::optional(NodeId{7}), std::vector{all.back()}));
  EXPECT_EQ(ran_on(NodeId{9}), ran_on({})) << "it has no CPUs";
}

// They have one PCI address.
TEST(UnifiedMemory, StopsBetweenRuns) {
  const test::FakeGpu fake("memory=64M,sms=4");
  int asked = 0;
  const auto result = run({.size = 1_MiB, .runs = 9}, {.stop = [&] { return ++asked > 3; }});
  ASSERT_TRUE(result);
  EXPECT_EQ(result->runs.size(), 3U);
}

TEST(UnifiedMemory, RefusesNonsense) {
  const test::FakeGpu fake("memory=64M");
  const auto code = [](const UnifiedMemoryCase& asked) { return run(asked).error().code; };
  EXPECT_EQ(code({.size = 1_KiB}), ErrorCode::invalid);
  EXPECT_EQ(code({.size = 1_MiB, .runs = 0}), ErrorCode::invalid);
  EXPECT_EQ(code({.size = 1_MiB, .streams = 0}), ErrorCode::invalid);
  EXPECT_EQ(code({.size = 1_MiB, .managed = false, .accessed_by = true}), ErrorCode::invalid);
  EXPECT_EQ(code({.size = 1_MiB, .node = NodeId{77}}), ErrorCode::absent);
  EXPECT_EQ(code({.size = 1_MiB, .node = test::kGpu}), ErrorCode::absent);
  EXPECT_EQ(code({.size = 1_MiB, .prefetch_block = 1_KiB}), ErrorCode::invalid);
  EXPECT_EQ(code({.size = 1_MiB, .device = 7}), ErrorCode::absent);
}

}  // namespace
}  // namespace headrace
