// SPDX-License-Identifier: Apache-2.0
// Order, batches, times, queues and the end of descriptors, on a device that the test steps.
#include "tests/support/dsa/device.h"

#include <algorithm>
#include <set>
#include <vector>

#include "tests/support/dsa/testing.h"

namespace headrace::emulator {
namespace {

using namespace test;

// Two queues, a shared and a dedicated one.
DeviceSetup with_engines(unsigned engines) {
  DeviceSetup setup = dsa2();
  setup.engines = engines;
  setup.queues = {{.size = 64, .threshold = 48}, {.shared = false, .size = 4}};
  return setup;
}

class DeviceTest : public testing::Test {
 protected:
  void use(DeviceOptions options) {
    device_ = Device::open(std::move(options)).value();
    client_.records = {};
  }
  // Submits no-ops with these records.
  void submit(std::vector<std::size_t> records) {
    for (const std::size_t i : records) {
      EXPECT_TRUE(device_->enqcmd(0, client_.space, client_.noop(i)));
    }
  }
  // Submits a batch of no-ops with the records 1 and up; record 0 is the batch's.
  void submit_batch(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) client_.list[i] = client_.noop(i + 1);
    submit_list(count);
  }
  void submit_list(std::size_t count) {
    EXPECT_TRUE(device_->enqcmd(
        0, client_.space, make_batch(std::span(client_.list).first(count), client_.records[0])));
  }
  // Runs the device; the order in which records were written.
  std::vector<std::size_t> order() {
    std::vector<std::size_t> written;
    do {
      for (std::size_t n = 1; n <= client_.records.size(); ++n) {
        const std::size_t i = n % client_.records.size();  // a step writes a batch's own last
        const bool known = std::ranges::count(written, i) > 0;
        if (client_.records[i].status != 0 && !known) written.push_back(i);
      }
    } while (device_->step());
    return written;
  }

  Client client_;
  std::unique_ptr<Device> device_;
};

// SPEC 3.8, 3.9.
TEST_F(DeviceTest, OrderIsThatOfTheQueue_WithOneEngineOnly) {
  std::set<std::vector<std::size_t>> orders;
  std::set<std::vector<std::size_t>> in_batches;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    use({.setup = with_engines(1), .seed = seed});
    submit({1, 2, 3, 4});
    EXPECT_EQ(order(), (std::vector<std::size_t>{1, 2, 3, 4}));
    use({.setup = with_engines(4), .seed = seed});
    submit({1, 2, 3, 4});
    orders.insert(order());
    use({.setup = with_engines(1), .seed = seed});
    submit_batch(5);
    const auto written = order();
    EXPECT_EQ(written.size(), 6U);
    EXPECT_EQ(written.back(), 0U) << "the batch's own is the last";
    EXPECT_EQ(client_.records[0].completed, 5U);
    in_batches.insert(written);
  }
  EXPECT_GT(orders.size(), 5U);
  EXPECT_GT(in_batches.size(), 5U);
}

TEST_F(DeviceTest, TheSameSeed_GivesTheSameRun) {
  const auto run = [&](std::uint64_t seed) {
    use({.setup = with_engines(4), .seed = seed});
    for (std::size_t i = 1; i < 40; ++i) submit({i});
    return order();
  };
  EXPECT_EQ(run(3), run(3));
  EXPECT_NE(run(3), run(4));
}

// SPEC 3.9, 8.3.2.
TEST_F(DeviceTest, Batch_ReportsFailuresAndAFaultInItsList) {
  use({.setup = with_engines(2)});
  client_.list[0] = client_.noop(1);
  client_.list[1] = client_.noop(2);
  client_.list[1].size = 1;
  client_.list[2] = client_.noop(3);
  submit_list(3);
  order();
  EXPECT_EQ(client_.records[0].code(), Code::batch_failed);
  EXPECT_EQ(client_.records[0].completed, 3U);
  EXPECT_EQ(client_.records[1].code(), Code::success);
  EXPECT_EQ(client_.records[2].code(), Code::reserved_field);
  EXPECT_EQ(client_.records[3].code(), Code::success);

  client_.records = {};
  Descriptor batch = make(Opcode::batch, client_.records[0]);
  batch.source = client_.memory.address(kPage - 128);
  batch.size = 5;
  std::memcpy(&client_.memory[kPage - 128], client_.list.data(), 128);
  client_.memory.protect(1, PROT_NONE);
  EXPECT_TRUE(device_->enqcmd(0, client_.space, batch));
  device_->run();
  EXPECT_EQ(client_.records[0].code(), Code::batch_list_fault);
  EXPECT_EQ(client_.records[0].completed, 2U);
  EXPECT_EQ(client_.records[0].fault_address, client_.memory.address(kPage));
  EXPECT_EQ(client_.records[1].code(), Code::success);
}

// SPEC 5.3, 5.7.
TEST_F(DeviceTest, Queues_TakeWhatTheyHaveSpaceFor) {
  use({.setup = with_engines(1)});
  std::size_t taken = 0;
  while (device_->enqcmd(0, client_.space, client_.noop(1))) ++taken;
  EXPECT_EQ(taken, 48U);
  EXPECT_EQ(device_->occupancy(0), 48U);
  EXPECT_FALSE(device_->enqcmd(1, client_.space, client_.noop(1))) << "dedicated";
  for (int i = 0; i < 6; ++i) device_->movdir64b(1, client_.space, client_.noop(2));
  device_->movdir64b(0, client_.space, client_.noop(2));
  device_->run();
  EXPECT_EQ(device_->occupancy(0), 0U);
  EXPECT_TRUE(device_->enqcmd(0, client_.space, client_.noop(1)));
  const DeviceStats stats = device_->stats();
  EXPECT_EQ(stats.accepted, 48U + 4U + 1U);
  EXPECT_EQ(stats.retried, 2U);
  EXPECT_EQ(stats.dropped, 2U);
  EXPECT_EQ(stats.discarded, 1U);
}

// As the kernel's driver does (drv_disable_wq).
TEST_F(DeviceTest, DisabledQueue_IsDrainedAndTakesNothing) {
  use({.setup = with_engines(2)});
  submit_batch(4);
  submit({5, 6});
  device_->movdir64b(1, client_.space, client_.noop(7));
  while (client_.records[1].status + client_.records[2].status == 0) ASSERT_TRUE(device_->step());
  device_->disable(0);
  for (std::size_t i = 0; i < 7; ++i) EXPECT_EQ(client_.records[i].code(), Code::success) << i;
  EXPECT_FALSE(device_->enabled(0));
  EXPECT_FALSE(device_->enqcmd(0, client_.space, client_.noop(1)));
  device_->run();
  EXPECT_EQ(client_.records[7].code(), Code::success) << "of another queue";
  device_->enable(0);
  EXPECT_TRUE(device_->enqcmd(0, client_.space, client_.noop(1)));
  EXPECT_EQ(device_->stats().abandoned, 0U);
}

TEST_F(DeviceTest, HaltedDevice_AbandonsAllAndTakesNothing) {
  use({.setup = with_engines(2)});
  submit_batch(4);
  submit({5, 6});
  for (int i = 0; i < 3; ++i) device_->step();
  device_->halt();
  EXPECT_TRUE(device_->halted());
  const auto before = client_.records;
  device_->run();
  EXPECT_EQ(std::memcmp(&before, &client_.records, sizeof(before)), 0);
  EXPECT_FALSE(device_->enqcmd(0, client_.space, client_.noop(1)));
  EXPECT_TRUE(device_->idle());
  device_->recover();
  submit({1});
  device_->run();
  EXPECT_EQ(client_.records[1].code(), Code::success);
}

// A clock that nobody advances would hold up the caller.
TEST_F(DeviceTest, DescriptorsWhoseTimeNeverComes_AreAbandoned) {
  ManualClock clock;
  use({.setup = with_engines(1), .rates = DeviceRates{}, .clock = &clock});
  submit({1});
  EXPECT_FALSE(device_->drain(client_.space, std::chrono::seconds{30}));
  device_->disable(0);
  EXPECT_TRUE(device_->idle());
  EXPECT_EQ(device_->stats().abandoned, 1U);
  EXPECT_TRUE(device_->drain(client_.space, std::chrono::seconds{30}));
}

TEST_F(DeviceTest, OneClient_IsDrainedAndForgottenAlone) {
  use({.setup = with_engines(1)});
  Client other;
  for (std::size_t i = 1; i < 5; ++i) {
    submit({i});
    device_->enqcmd(0, other.space, other.noop(i));
  }
  EXPECT_TRUE(device_->drain(client_.space, std::chrono::seconds{30}));
  EXPECT_EQ(client_.records[4].code(), Code::success);
  EXPECT_EQ(device_->occupancy(0), 1U) << "the other one's last";
  submit_batch(4);
  device_->step();
  device_->forget(other.space);
  EXPECT_EQ(device_->stats().abandoned, 1U);
  order();
  EXPECT_EQ(client_.records[0].code(), Code::success);
  EXPECT_EQ(other.records[4].status, 0);
}

TEST_F(DeviceTest, Faults_AreThoseOfTheMoment) {
  use({.setup = with_engines(1)});
  device_->set_faults({.hardware_chance = 1});
  submit({1});
  device_->run();
  device_->set_faults({.lost_record_chance = 1});
  submit({2});
  device_->run();
  device_->set_faults({.drop_chance = 1});
  device_->movdir64b(1, client_.space, client_.noop(3));
  device_->run();
  EXPECT_EQ(client_.records[1].code(), Code::hardware);
  EXPECT_EQ(client_.records[2].status, 0);
  const DeviceStats stats = device_->stats();
  EXPECT_EQ(stats.executed, 2U);
  EXPECT_EQ(stats.failed, 1U);
  EXPECT_EQ(stats.records_lost, 1U);
  EXPECT_EQ(stats.dropped, 1U);
}

// DeviceRates, by hand: start-up, hidden behind the data of other descriptors; then bytes at the
// engine's rate, and the device's over all engines.
TEST_F(DeviceTest, NothingIsDoneBeforeItsTime) {
  ManualClock clock;
  const DeviceRates rates{
      .start_up = Nanoseconds{100}, .engine = BytesPerSecond{1e9}, .device = BytesPerSecond{1e9}};
  use({.setup = with_engines(2), .rates = rates, .clock = &clock});
  for (const std::size_t i : {1U, 2U}) {
    device_->enqcmd(0, client_.space, client_.move(0, 8 * kPage, 1000, i));
  }
  submit({3});
  device_->run();
  EXPECT_EQ(device_->next_due(), Nanoseconds{1100});
  clock.advance(Nanoseconds{1099});
  EXPECT_FALSE(device_->step());
  clock.advance(Nanoseconds{1});
  device_->run();
  EXPECT_EQ(client_.records[1].code(), Code::success);
  EXPECT_EQ(client_.records[2].status, 0) << "the device's rate is shared";
  EXPECT_EQ(client_.records[3].code(), Code::success) << "on the engine that was free, started up";
  EXPECT_EQ(device_->next_due(), Nanoseconds{2100});
  clock.advance(Nanoseconds{10000});
  device_->run();
  EXPECT_EQ(client_.records[2].code(), Code::success);
  EXPECT_EQ(device_->next_due(), std::nullopt);
}

// A clock that leaps gives the times of one that creeps.
TEST_F(DeviceTest, TimesDoNotDependOnTheNumberOfLooks) {
  for (const Nanoseconds leap : {Nanoseconds{4000}, Nanoseconds{50}}) {
    ManualClock clock;
    use({.setup = with_engines(1), .rates = DeviceRates{}, .clock = &clock});
    for (std::size_t i = 1; i < 40; ++i) {
      device_->enqcmd(0, client_.space, client_.move(0, kPage, 3000, i));
    }
    while (clock.now() < Nanoseconds{4000}) {
      clock.advance(leap);
      device_->run();
    }
    EXPECT_EQ(device_->stats().executed, 31U) << "of 100 ns each, after 860";
  }
}

TEST(DeviceSetups, ImpossibleOnes_AreRefused) {
  const auto refused = [](const auto& spoil) {
    DeviceSetup setup = sapphire_rapids();
    spoil(setup);
    const auto device = Device::open({.setup = setup});
    return device ? ErrorCode::io : device.error().code;
  };
  using Setup = DeviceSetup;
  EXPECT_EQ(refused([](Setup& of) { of.queues.clear(); }), ErrorCode::invalid);
  EXPECT_EQ(refused([](Setup& of) { of.queues.resize(9); }), ErrorCode::invalid);
  EXPECT_EQ(refused([](Setup& of) { of.engines = 0; }), ErrorCode::invalid);
  EXPECT_EQ(refused([](Setup& of) { of.engines = 5; }), ErrorCode::invalid);
  EXPECT_EQ(refused([](Setup& of) { of.queues[0].size = 0; }), ErrorCode::invalid);
  EXPECT_EQ(refused([](Setup& of) { of.queues[0].size = 129; }), ErrorCode::invalid);
  EXPECT_EQ(refused([](Setup& of) { of.queues[0].threshold = 129; }), ErrorCode::invalid);
}

}  // namespace
}  // namespace headrace::emulator
