// SPDX-License-Identifier: Apache-2.0
#include "dsa_sim/rates/rates.h"

#include <gtest/gtest.h>

#include "measure/experiments/dsa/testing.h"

namespace headrace::dsa_rates {
namespace {

// Seconds of all copies.
double modelled(const std::vector<DsaThread>& threads, const DsaShape& shape = {}) {
  const DsaModel model(test::xeon_max());
  instruments::BufferPool buffers(model.machine());
  const auto run = model.prepare(threads, shape, buffers);
  EXPECT_TRUE(run) << run.error().message;
  const auto times = (*run)->round();
  EXPECT_TRUE(times) << times.error().message;
  EXPECT_EQ((*run)->round()->all, times->all) << "there is no second time";
  return seconds(times->all);
}

DsaThread copy_of(Bytes bytes) {
  return {.engine = EngineId{0}, .from = NodeId{0}, .to = NodeId{0}, .bytes = bytes};
}

double gib_per_second(Bytes bytes, double time) {
  return static_cast<double>(bytes.value) / time / static_cast<double>((1_GiB).value);
}

TEST(DsaModel, OneCopyIsSubmissionStartUpAndData) {
  const DsaCosts costs;
  const double data = 10e3 / costs.device.value;
  EXPECT_NEAR(modelled({copy_of(Bytes{10000})}), seconds(costs.enqcmd + costs.start_up) + data,
              2e-9);
}

TEST(DsaModel, IsAsFastAsPublishedFromOneMebibyteOn) {
  for (const Bytes size : {1_MiB, 1_GiB}) {
    EXPECT_NEAR(gib_per_second(size, modelled({copy_of(size)})), 29, 1) << to_string(size);
  }
}

TEST(DsaModel, ABatchPaysForOneSubmission) {
  DsaThread batch = copy_of(1_KiB);
  batch.copies = batch.at_once = batch.window = 50;
  batch.method = DsaMethod::batch;
  const DsaCosts costs;
  const double data = 50 * 1024 / costs.device.value;
  // Its list, and then the first of its copies, start up.
  EXPECT_NEAR(modelled({batch}), seconds(costs.enqcmd + costs.start_up * 2) + data, 1e-7);
  DsaThread vectored = batch;
  vectored.method = DsaMethod::vectored;
  EXPECT_NEAR(modelled({vectored}),
              seconds(costs.system_call + costs.enqcmd * 50 + costs.start_up) + data / 50, 1e-7);
}

TEST(DsaModel, WhatIsInFlightHidesStartUp) {
  DsaThread waiting = copy_of(16_KiB);
  waiting.copies = 64;
  DsaThread pipelined = waiting;
  pipelined.window = 8;
  const double data = 64 * 16384 / DsaCosts{}.device.value;
  EXPECT_NEAR(modelled({pipelined}), data, 0.05 * data);
  EXPECT_GT(modelled({waiting}), 2 * data);
}

TEST(DsaModel, ThreadsShareTheDevice) {
  DsaThread thread = copy_of(1_MiB);
  thread.copies = 10;
  const std::vector<DsaThread> twelve(12, thread);
  const double rate = gib_per_second(120_MiB, modelled(twelve));
  EXPECT_NEAR(rate, DsaCosts{}.device.value / 1073741824.0, 0.1);
}

TEST(DsaModel, DedicatedQueuesTakeMoreSmallCopies) {
  DsaThread thread = copy_of(1_KiB);
  thread.copies = 200;
  thread.window = 16;
  EXPECT_LT(modelled({thread}, {.shared = false}), modelled({thread}, {.shared = true}) / 2);
}

// 1 GiB from node 0, an equal part by each device: the published routes to a node.
double route_to(std::uint32_t to, const std::vector<std::uint32_t>& devices) {
  std::vector<DsaThread> threads;
  for (const std::uint32_t device : devices) {
    threads.push_back({.engine = EngineId{device},
                       .from = NodeId{0},
                       .to = NodeId{to},
                       .bytes = Bytes{(1_GiB).value / devices.size()}});
  }
  return gib_per_second(1_GiB, modelled(threads));
}

// The table of docs/design/dsa-rates.md; it says which of these agree with what was published.
TEST(DsaModel, RoutesAreAsTheirTableSays) {
  struct Published {
    std::uint32_t to;
    std::vector<std::uint32_t> smart;
    double modelled_brute;
    double modelled_smart;
  };
  for (const auto& [to, smart, brute_rate, smart_rate] :
       std::vector<Published>{{8, {0, 1, 2, 3}, 96.0, 96.0},
                              {11, {0, 1, 2, 3}, 96.0, 78.0},
                              {12, {0, 4}, 96.0, 58.1},
                              {15, {0, 7}, 96.0, 58.1}}) {
    EXPECT_NEAR(route_to(to, {0, 1, 2, 3, 4, 5, 6, 7}), brute_rate, 0.1) << to;
    EXPECT_NEAR(route_to(to, smart), smart_rate, 0.1) << to;
  }
}

// What one machine's memory was seen to give is no floor for other memories.
TEST(DsaModel, MemoryWithABandwidthOfItsOwn_GivesThat) {
  Machine machine = test::xeon_max();
  for (AccessAttributes& access : machine.nodes[0].access) {
    access.read_bandwidth = BytesPerSecond{50e9};
  }
  std::vector<DsaThread> threads;
  for (std::uint32_t device = 0; device < 4; ++device) {
    threads.push_back({.engine = EngineId{device},
                       .from = NodeId{0},
                       .to = NodeId{8},
                       .bytes = Bytes{(1_GiB).value / 4}});
  }
  EXPECT_NEAR(seconds(DsaModel(machine).run(threads, {})->all),
              static_cast<double>((1_GiB).value) / 50e9, 1e-3);
}

// Two copies between the same sockets share what joins them; each had enough for itself.
TEST(DsaModel, ALinkLimitsAllWhoCrossIt) {
  Machine machine = test::xeon_max();
  const std::vector<DsaThread> threads = {
      {.engine = EngineId{0}, .from = NodeId{0}, .to = NodeId{12}, .bytes = 1_GiB},
      {.engine = EngineId{1}, .from = NodeId{1}, .to = NodeId{13}, .bytes = 1_GiB}};
  const auto rate = [&](const std::vector<DsaThread>& together) {
    return seconds(DsaModel(machine).run(together, {})->all);
  };
  EXPECT_NEAR(rate(threads), rate({threads[0]}), 1e-3 * rate(threads)) << "no limit is known";
  machine.links[0].each_way = BytesPerSecond{40e9};
  EXPECT_NEAR(rate({threads[0]}), static_cast<double>((1_GiB).value) / 31.17e9, 1e-3);
  EXPECT_NEAR(rate(threads), 2 * static_cast<double>((1_GiB).value) / 40e9, 1e-3);
  std::vector<DsaThread> against = threads;
  against[1].from = NodeId{13};
  against[1].to = NodeId{1};
  EXPECT_NEAR(rate(against), rate({threads[0]}), 1e-3) << "the other direction has its own limit";
  machine.links[0].both_ways = BytesPerSecond{40e9};
  EXPECT_NEAR(rate(against), 2 * static_cast<double>((1_GiB).value) / 40e9, 1e-3);
}

TEST(DsaModel, MoreThanTheQueueHoldsComesInTheEnd) {
  DsaThread thread = copy_of(4_KiB);
  thread.copies = 400;
  thread.window = 128;
  EXPECT_GT(modelled({thread, thread, thread}), 0);
}

TEST(DsaModel, NamesWhatIsNoDevice) {
  DsaModel model(test::xeon_max());
  DsaThread thread = copy_of(1_KiB);
  thread.engine = EngineId{8};
  EXPECT_EQ(model.run({thread}, {}).error().code, ErrorCode::absent);
}

}  // namespace
}  // namespace headrace::dsa_rates
