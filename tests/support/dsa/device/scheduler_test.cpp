// SPDX-License-Identifier: Apache-2.0
// Order, batches, drains, time and the end of things.
#include "tests/support/dsa/device/scheduler.h"

#include <algorithm>
#include <set>

#include "tests/support/dsa/device/device_testing.h"

namespace headrace::emulator {
namespace {

using namespace test;

DeviceSetup with_engines(unsigned engines) {
  DeviceSetup setup = dsa3();
  setup.groups = {GroupSetup{engines}};
  setup.queues = {QueueSetup{.size = 64, .threshold = 64}, QueueSetup{.shared = false, .size = 32}};
  return setup;
}

class SchedulerTest : public DeviceTest {
 protected:
  // Submits `count` noops with records 1 and up, and tells in which order those were written.
  std::vector<std::size_t> order_of(std::size_t count) {
    client_.clear_records();
    for (std::size_t i = 1; i <= count; ++i) {
      EXPECT_TRUE(device_->enqcmd(0, client_.space, make(Opcode::noop, client_.records[i])));
    }
    return order();
  }
  std::vector<std::size_t> order() {
    std::vector<std::size_t> written;
    do {
      for (std::size_t i = 1; i < client_.records.size(); ++i) {
        const bool known = std::find(written.begin(), written.end(), i) != written.end();
        if (client_.records[i].status != 0 && !known) written.push_back(i);
      }
    } while (device_->step());
    return written;
  }
  Descriptor noop(std::size_t record, std::uint32_t flags = kRecord) {
    return make(Opcode::noop, client_.records[record], flags);
  }
};

// SPEC 3.8: one engine keeps the order of a queue; several do not.
TEST_F(SchedulerTest, OrderWithinAQueue) {
  std::set<std::vector<std::size_t>> orders;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    use({.setup = with_engines(1), .seed = seed});
    EXPECT_EQ(order_of(4), (std::vector<std::size_t>{1, 2, 3, 4}));
    use({.setup = with_engines(4), .seed = seed});
    orders.insert(order_of(4));
  }
  EXPECT_GT(orders.size(), 5U);
}

TEST_F(SchedulerTest, TheSameSeedGivesTheSameRun) {
  const auto run = [&](std::uint64_t seed) {
    use({.setup = with_engines(4), .seed = seed});
    return order_of(40);
  };
  EXPECT_EQ(run(3), run(3));
  EXPECT_NE(run(3), run(4));
}

// SPEC 3.9: descriptors of a batch in any order, except for a fence.
TEST_F(SchedulerTest, OrderWithinABatch) {
  std::set<std::vector<std::size_t>> orders;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    use({.setup = with_engines(2), .seed = seed});
    client_.clear_records();
    alignas(64) const Descriptor list[] = {noop(1), noop(2), noop(3),
                                           noop(4, kRecord | flag::fence), noop(5)};
    client_.space.add(
        std::span(reinterpret_cast<std::byte*>(const_cast<Descriptor*>(list)), sizeof(list)));
    EXPECT_TRUE(device_->enqcmd(0, client_.space, make_batch(list, client_.records[6])));
    const std::vector<std::size_t> written = order();
    ASSERT_EQ(written.size(), 6U);
    EXPECT_EQ(written.back(), 6U) << "the batch's own comes last";
    const std::set<std::size_t> first(written.begin(), written.begin() + 3);
    EXPECT_EQ(first, (std::set<std::size_t>{1, 2, 3}));
    EXPECT_EQ(client_.records[6].completed, 5U);
    orders.insert(written);
  }
  EXPECT_GT(orders.size(), 5U);
}

// SPEC 3.9, 8.3.2.
TEST_F(SchedulerTest, BatchesReportWhatFailed) {
  use({.setup = with_engines(1)});
  Descriptor bad = noop(2);
  bad.size = 1;
  alignas(64)
      const Descriptor list[] = {noop(1), bad, noop(3), noop(4, kRecord | flag::fence), noop(5)};
  client_.clear_records();
  const Record record = execute_batch(list);
  EXPECT_EQ(record.code(), Code::batch_failed);
  EXPECT_EQ(record.completed, 3U);
  EXPECT_EQ(client_.records[1].code(), Code::success);
  EXPECT_EQ(client_.records[2].code(), Code::reserved_field);
  EXPECT_EQ(client_.records[3].code(), Code::success) << "no fence before it";
  EXPECT_EQ(client_.records[4].status, 0) << "abandoned";
  EXPECT_EQ(client_.records[5].status, 0);
  EXPECT_EQ(device_->stats().abandoned, 2U);
}

// Status 2 is no success for a fence (SPEC table 8-3, "Check Result").
TEST_F(SchedulerTest, AnUnexpectedResultStopsAtAFence) {
  use({.setup = with_engines(1)});
  Descriptor compare = make(Opcode::compare, client_.records[1], kRecord | flag::check_result);
  compare.source = at(0);
  compare.destination = at(kPage);
  compare.size = 100;
  compare.extra[0] = 1;
  alignas(64) const Descriptor list[] = {compare, noop(2, kRecord | flag::fence)};
  client_.clear_records();
  EXPECT_EQ(execute_batch(list).code(), Code::batch_failed);
  EXPECT_EQ(client_.records[1].status, 2);
  EXPECT_EQ(client_.records[2].status, 0);
}

TEST_F(SchedulerTest, ABatchWithoutRequestIsSilentUnlessItFails) {
  use({.setup = with_engines(1)});
  alignas(64) Descriptor list[] = {noop(1), noop(2)};
  EXPECT_EQ(execute_batch(list, flag::record_valid).status, 0);
  EXPECT_EQ(client_.records[2].code(), Code::success);
  list[1].set(static_cast<Opcode>(0x7f), kRecord);
  EXPECT_EQ(execute_batch(list, flag::record_valid).code(), Code::batch_failed);
}

// SPEC 8.3.2: what is before the fault is executed; the rest may be submitted.
TEST_F(SchedulerTest, ABatchIsResumedBehindAFaultInItsList) {
  DeviceSetup setup = with_engines(1);
  setup.queues[0].block_on_fault = false;
  use({.setup = setup});
  std::vector<Descriptor> list;
  for (std::size_t i = 1; i <= 5; ++i) list.push_back(noop(i));
  std::memcpy(bytes(kPage - 128, 5 * 64).data(), list.data(), 5 * 64);
  client_.space.hide(bytes(kPage, 1));
  client_.clear_records();
  Descriptor batch = make(Opcode::batch, client_.records[0]);
  batch.source = at(kPage - 128);
  batch.size = 5;
  Record record = execute(batch);
  EXPECT_EQ(record.code(), Code::batch_list_fault);
  EXPECT_EQ(record.completed, 2U);
  EXPECT_EQ(record.fault_address, at(kPage));
  EXPECT_EQ(record.result, 0);
  client_.space.show_all();
  batch.source += 64 * std::uint64_t{record.completed};
  batch.size -= record.completed;
  record = execute(batch);
  EXPECT_EQ(record.code(), Code::success);
  for (std::size_t i = 1; i <= 5; ++i) EXPECT_EQ(client_.records[i].code(), Code::success) << i;
}

// SPEC 3.12: of a shared queue for those of its client, of a dedicated one for all.
TEST_F(SchedulerTest, ADrainWaitsForThoseBeforeIt) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    use({.setup = with_engines(4), .seed = seed});
    client_.clear_records();
    for (const std::size_t i : {1U, 2U, 3U}) device_->enqcmd(0, client_.space, noop(i));
    device_->enqcmd(0, client_.space, make(Opcode::drain, client_.records[4]));
    device_->enqcmd(0, client_.space, noop(5));
    const auto written = order();
    const auto drain = std::find(written.begin(), written.end(), 4U);
    EXPECT_GE(drain - written.begin(), 3);
    for (const std::size_t i : {1U, 2U, 3U}) EXPECT_NE(std::find(written.begin(), drain, i), drain);
  }
}

TEST_F(SchedulerTest, ADrainWaitsForABatch) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    use({.setup = with_engines(4), .seed = seed});
    client_.clear_records();
    alignas(64) const Descriptor list[] = {noop(1), noop(2), noop(3)};
    client_.space.add(
        std::span(reinterpret_cast<std::byte*>(const_cast<Descriptor*>(list)), sizeof(list)));
    device_->enqcmd(0, client_.space, make_batch(list, client_.records[4]));
    device_->enqcmd(0, client_.space, make(Opcode::drain, client_.records[5]));
    EXPECT_EQ(order().back(), 5U);
  }
}

// As the kernel's driver does (drv_disable_wq): also a batch in the middle, and what waits in line.
TEST_F(SchedulerTest, WhatADisabledQueueAcceptedIsDrained) {
  use({.setup = with_engines(2)});
  client_.clear_records();
  alignas(64) const Descriptor list[] = {noop(1), noop(2), noop(3), noop(4)};
  client_.space.add(
      std::span(reinterpret_cast<std::byte*>(const_cast<Descriptor*>(list)), sizeof(list)));
  device_->enqcmd(0, client_.space, make_batch(list, client_.records[5]));
  device_->movdir64b(1, client_.space, noop(6));
  for (int i = 0; i < 5; ++i) device_->enqcmd(0, client_.space, noop(7));
  while (client_.records[1].status + client_.records[2].status + client_.records[3].status +
             client_.records[4].status ==
         0) {
    ASSERT_TRUE(device_->step());
  }
  device_->disable(0);
  for (const std::size_t i : {1U, 2U, 3U, 4U, 5U, 7U}) {
    EXPECT_EQ(client_.records[i].code(), Code::success) << i;
  }
  EXPECT_FALSE(device_->enqcmd(0, client_.space, noop(8)));
  device_->run();
  EXPECT_EQ(client_.records[6].code(), Code::success) << "of another queue";
  EXPECT_TRUE(device_->idle());
  device_->enable(0);
  EXPECT_EQ(execute(noop(1)).code(), Code::success);
  DeviceStats stats = device_->stats();
  EXPECT_EQ(stats.abandoned, 0U);
  EXPECT_EQ(stats.accepted + 4, stats.executed[Opcode::noop] + stats.executed[Opcode::batch]);
}

// A clock that nobody advances would hold up whoever disables.
TEST_F(SchedulerTest, WhatWaitsForATimeThatDoesNotComeIsAbandoned) {
  ManualClock clock;
  use({.setup = with_engines(1), .rates = DeviceRates{}, .clock = &clock});
  client_.clear_records();
  device_->enqcmd(0, client_.space, noop(1));
  EXPECT_FALSE(device_->drain(client_.space, std::chrono::seconds{30}));
  device_->disable(0);
  EXPECT_TRUE(device_->idle());
  EXPECT_EQ(device_->stats().abandoned, 1U);
  EXPECT_TRUE(device_->drain(client_.space, std::chrono::seconds{30}));
}

TEST_F(SchedulerTest, ADeviceIsDrainedForOneClient) {
  use({.setup = with_engines(1)});
  TestClient other;
  client_.clear_records();
  for (std::size_t i = 1; i < 5; ++i) {
    device_->enqcmd(0, client_.space, noop(i));
    device_->enqcmd(0, other.space, make(Opcode::noop, other.records[i]));
  }
  EXPECT_TRUE(device_->drain(client_.space, std::chrono::seconds{30}));
  for (std::size_t i = 1; i < 5; ++i) EXPECT_EQ(client_.records[i].code(), Code::success);
  EXPECT_EQ(device_->occupancy(0), 1U) << "the other one's last";
}

TEST_F(SchedulerTest, AClientIsForgottenAlone) {
  use({.setup = with_engines(2)});
  auto gone = std::make_unique<TestClient>();
  client_.clear_records();
  for (std::size_t i = 1; i < 5; ++i) {
    device_->enqcmd(0, gone->space, make(Opcode::noop, gone->records[i]));
    device_->enqcmd(0, client_.space, noop(i));
  }
  device_->step();
  device_->step();
  device_->forget(gone->space);
  gone.reset();
  device_->run();
  for (std::size_t i = 1; i < 5; ++i) EXPECT_EQ(client_.records[i].code(), Code::success);
}

TEST_F(SchedulerTest, ScriptsCountDescriptorsAsTheyBecomeKnown) {
  std::vector<std::uint64_t> numbers;
  DeviceOptions options{.setup = with_engines(1)};
  options.faults.script = [&](const Descriptor& descriptor, std::uint64_t number) {
    if (descriptor.opcode() == Opcode::noop) numbers.push_back(number);
    return InjectedFault{};
  };
  use(options);
  alignas(64) const Descriptor list[] = {noop(1), noop(2), noop(3)};
  execute_batch(list);
  execute(noop(1));
  std::sort(numbers.begin(), numbers.end());
  EXPECT_EQ(numbers, (std::vector<std::uint64_t>{1, 2, 3, 4})) << "0 is the batch";
}

// DeviceRates, by hand: start-up, hidden behind the data of other descriptors; then bytes at the
// engine's rate, the device's over all engines.
TEST_F(SchedulerTest, NothingIsDoneBeforeItsTime) {
  ManualClock clock;
  const DeviceRates rates{
      .start_up = Nanoseconds{100}, .engine = BytesPerSecond{1e9}, .device = BytesPerSecond{1e9}};
  use({.setup = with_engines(2), .rates = rates, .clock = &clock});
  client_.clear_records();
  for (const std::size_t i : {1U, 2U}) {
    device_->enqcmd(0, client_.space, make_move(at(0), at(8 * kPage), 1000, client_.records[i]));
  }
  device_->enqcmd(0, client_.space, noop(3));
  device_->run();
  EXPECT_EQ(client_.records[1].status, 0);
  EXPECT_EQ(device_->next_due(), Nanoseconds{1100});
  clock.advance(Nanoseconds{1099});
  EXPECT_EQ(device_->run(), 0U);
  clock.advance(Nanoseconds{1});
  device_->run();
  EXPECT_EQ(client_.records[1].code(), Code::success);
  EXPECT_EQ(client_.records[2].status, 0) << "the device's rate is shared";
  EXPECT_EQ(client_.records[3].code(), Code::success) << "on the engine that was free, started up";
  EXPECT_EQ(device_->next_due(), Nanoseconds{2100});
  clock.advance(Nanoseconds{10000});
  device_->run();
  EXPECT_EQ(client_.records[2].code(), Code::success);
  EXPECT_EQ(client_.records[3].code(), Code::success);
  EXPECT_EQ(device_->next_due(), std::nullopt);
}

// A clock that leaps gives the times of one that creeps.
TEST_F(SchedulerTest, TimesDoNotDependOnWhoLooks) {
  const auto done_at = [&](Nanoseconds time, Nanoseconds leap) {
    ManualClock clock;
    use({.setup = with_engines(1), .rates = DeviceRates{}, .clock = &clock});
    client_.clear_records();
    for (std::size_t i = 1; i < 40; ++i) {
      device_->enqcmd(0, client_.space, make_move(at(0), at(kPage), 3000, client_.records[i]));
    }
    while (clock.now() < time) {
      clock.advance(std::min(leap, time - clock.now()));
      device_->run();
    }
    return device_->stats().records_written;
  };
  EXPECT_EQ(done_at(Nanoseconds{4000}, Nanoseconds{4000}), 31U) << "of 100 ns each, after 860";
  EXPECT_EQ(done_at(Nanoseconds{4000}, Nanoseconds{50}), 31U);
}

// Memory beyond the device may be slower than the device.
TEST_F(SchedulerTest, NothingIsDoneBeforeTheMemoryBeyondIs) {
  ManualClock clock;
  DeviceRates rates{.start_up = Nanoseconds{100}};
  rates.beyond = [](const Descriptor& descriptor, Nanoseconds begin) {
    return begin + Nanoseconds{descriptor.size};
  };
  use({.setup = with_engines(1), .rates = rates, .clock = &clock});
  client_.clear_records();
  device_->enqcmd(0, client_.space, make_move(at(0), at(kPage), 3000, client_.records[1]));
  device_->run();
  EXPECT_EQ(device_->next_due(), Nanoseconds{3100});
}

}  // namespace
}  // namespace headrace::emulator
