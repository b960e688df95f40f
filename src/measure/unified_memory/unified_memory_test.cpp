#include "measure/unified_memory/unified_memory.h"

#include <gtest/gtest.h>

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
  EXPECT_EQ(run({.size = 1_MiB, .runs = 1, .wide = true})->in_flight, 64_B * (80 * 2048));
}

TEST(UnifiedMemory, TellsItsGpus) {
  const test::FakeGpu fake("memory=64M,devices=2,paradigm=hmm");
  const auto gpus = unified_memory_gpus(*Machine::discover());
  ASSERT_TRUE(gpus) << gpus.error().message;
  ASSERT_EQ(gpus->size(), 2U);
  EXPECT_EQ(gpus->back().capacity, 64_MiB);
  EXPECT_EQ(gpus->back().paradigm, GpuParadigm::hmm);
  const ScopedVariable nowhere("HEADRACE_LIBCUDA", "/nowhere.so");
  EXPECT_EQ(unified_memory_gpus(*Machine::discover()).error().code, ErrorCode::absent);
}

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
  EXPECT_EQ(code({.size = 1_MiB, .node = NodeId{0}}), ErrorCode::invalid);
  EXPECT_EQ(code({.size = 1_MiB, .prefetch_block = 1_KiB}), ErrorCode::invalid);
  EXPECT_EQ(code({.size = 1_MiB, .device = 7}), ErrorCode::absent);
}

}  // namespace
}  // namespace headrace
