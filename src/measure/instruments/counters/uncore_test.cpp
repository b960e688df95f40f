// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/counters/uncore.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "measure/instruments/counters/counters_testing.h"

namespace headrace::instruments {
namespace {

class UncoreTest : public testing::Test {
 protected:
  auto open() { return open_uncore(host_.at("sys"), perf_); }

  test::FakeHost host_;
  test::FakePerf perf_;
};

TEST_F(UncoreTest, OpensReadsAndWritesOfEachControllerOnEachSocket) {
  test::add_imc(host_, 0, 14);
  test::add_imc(host_, 1, 15);
  host_.write("sys/bus/event_source/devices/uncore_cha_0/type", "30");
  host_.write("sys/bus/event_source/devices/cpu/type", "4");
  const auto counter = open();
  ASSERT_TRUE(counter) << counter.error().message;
  ASSERT_EQ(perf_.opened.size(), 2U * 2 * 2) << "controllers x sockets x reads and writes";
  for (const int type : {14, 15}) {
    for (const int cpu : {0, 24}) {
      for (const std::uint64_t config : {0xcf05U, 0xf005U}) {
        EXPECT_EQ(std::ranges::count(perf_.opened,
                                     PerfEvent{static_cast<std::uint32_t>(type), config, cpu}),
                  1)
            << type << " " << cpu << " " << config;
      }
    }
  }
  EXPECT_EQ((*counter)->words(),
            "DDR controllers (uncore_imc_0 and 1 more): lines read and written, of all programs");
}

TEST_F(UncoreTest, MemoryOfOtherKindsHasOtherControllers) {
  test::add_imc(host_, 0, 14);
  const auto counter = open();
  ASSERT_TRUE(counter) << counter.error().message;
  EXPECT_TRUE((*counter)->counts({.kind = NodeKind::dram}));
  for (const NodeKind kind : {NodeKind::hbm, NodeKind::cxl, NodeKind::gpu}) {
    EXPECT_FALSE((*counter)->counts({.kind = kind})) << to_string(kind);
  }
  EXPECT_FALSE((*counter)->counts({.kind = NodeKind::dram, .side_cache = MemorySideCache{}}))
      << "what is in the cache of HBM does not come to DDR";
}

TEST_F(UncoreTest, CountsAreScaledToBytesAndToTheTimeTheyRan) {
  test::add_imc(host_, 0, 14);
  auto counter = open();
  ASSERT_TRUE(counter) << counter.error().message;
  ASSERT_EQ(perf_.opened.size(), 4U);
  for (int event = 0; event < 3; ++event) perf_.counts[event] = {1000, 50, 50};
  perf_.counts[3] = {1000, 200, 50};  // shared a counter with three other events
  const auto bytes = (*counter)->bytes();
  ASSERT_TRUE(bytes);
  EXPECT_DOUBLE_EQ(*bytes, 64 * (3 * 1000 + 4 * 1000));
  counter->reset();
  EXPECT_EQ(perf_.closed.size(), 4U);
}

// A million lines were counted in a quarter of the time, then 100 in all of it.
TEST_F(UncoreTest, WhatRanAllTheTimeIsNotScaledByTheTimeBefore) {
  test::add_imc(host_, 0, 14);
  auto counter = open();
  ASSERT_TRUE(counter) << counter.error().message;
  for (int event = 0; event < 4; ++event) perf_.counts[event] = {1'000'000, 4000, 1000};
  const auto before = (*counter)->bytes();
  for (int event = 0; event < 4; ++event) perf_.counts[event] = {1'000'100, 5000, 2000};
  const auto after = (*counter)->bytes();
  ASSERT_TRUE(before && after);
  EXPECT_DOUBLE_EQ(*before, 4 * 64 * 4e6);
  EXPECT_DOUBLE_EQ(*after - *before, 4 * 64 * 100);
}

TEST_F(UncoreTest, WithoutATurnSinceTheLastReadingThereIsNoNumber) {
  test::add_imc(host_, 0, 14);
  auto counter = open();
  ASSERT_TRUE(counter) << counter.error().message;
  EXPECT_FALSE((*counter)->bytes()) << "not yet at all";
  for (int event = 0; event < 4; ++event) perf_.counts[event] = {1000, 50, 50};
  const auto before = (*counter)->bytes();
  perf_.counts[2] = {1000, 90, 50};
  EXPECT_FALSE((*counter)->bytes());
  // Its time without a counter is made up at the next reading.
  for (int event = 0; event < 4; ++event) perf_.counts[event] = {1100, 150, 150};
  perf_.counts[2] = {1100, 150, 100};
  const auto after = (*counter)->bytes();
  ASSERT_TRUE(before && after);
  EXPECT_DOUBLE_EQ(*after - *before, 64 * (3 * 100 + 2 * 100));
}

TEST_F(UncoreTest, ChannelsWithSubchannelsCountThemAll) {
  test::add_imc(host_, 0, 14);
  const std::string events = "sys/bus/event_source/devices/uncore_imc_0/events/";
  for (const char* name : {"cas_count_read", "cas_count_write"}) {
    std::filesystem::rename(host_.at(events + name), host_.at(events + name + "_sch0"));
    host_.write(events + name + "_sch1", "event=0x06,umask=0xff");
  }
  ASSERT_TRUE(open());
  EXPECT_EQ(perf_.opened.size(), 4U * 2);
}

TEST_F(UncoreTest, AmdsControllersHaveOneEventForAllCommands) {
  const std::string pmu = "sys/bus/event_source/devices/amd_umc_3/";
  host_.write(pmu + "type", "21");
  host_.write(pmu + "cpumask", "0");
  host_.write(pmu + "format/event", "config:0-7");
  host_.write(pmu + "format/rdwrmask", "config:8-9");
  auto counter = open();
  ASSERT_TRUE(counter) << counter.error().message;
  EXPECT_EQ(perf_.opened, (std::vector<PerfEvent>{{21, 0x0a, 0}}));
  perf_.counts[0] = {10, 1, 1};
  EXPECT_DOUBLE_EQ((*counter)->bytes().value(), 640);
}

TEST_F(UncoreTest, FormatsInSeveralPartsAreFilledFromTheLowest) {
  test::add_imc(host_, 0, 14);
  host_.write("sys/bus/event_source/devices/uncore_imc_0/format/umask", "config:8-11,32-35");
  ASSERT_TRUE(open());
  EXPECT_EQ(std::ranges::count(perf_.opened, PerfEvent{14, 0xc'0000'0f05, 0}), 1);
}

TEST_F(UncoreTest, WithoutControllersOrRightsItSaysWhatToDo) {
  auto none = open();
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::absent);
  test::add_imc(host_, 0, 14);
  perf_.denied = true;
  const auto denied = open();
  ASSERT_FALSE(denied);
  EXPECT_EQ(denied.error().code, ErrorCode::denied);
  EXPECT_NE(denied.error().message.find("perf_event_paranoid=0"), std::string::npos);
}

// The kernel's own; the host may forbid it.
TEST(SystemPerf, CountsOrSaysWhyNot) {
  // PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK: every kernel with perf has it.
  const auto event = system_perf().open({.type = 1, .config = 0, .cpu = 0});
  if (!event) GTEST_SKIP() << event.error().message;
  const auto count = system_perf().read(*event);
  ASSERT_TRUE(count) << count.error().message;
  EXPECT_GT(count->enabled, 0U);
  EXPECT_LE(count->running, count->enabled);
  system_perf().close(*event);
  EXPECT_FALSE(system_perf().read(*event));
}

}  // namespace
}  // namespace headrace::instruments
