// SPDX-License-Identifier: Apache-2.0
#include "tests/support/dsa/dsa.h"

#include <map>
#include <thread>

#include "tests/support/dsa/testing.h"
#include "tests/support/machines.h"

namespace headrace::emulator {
namespace {

using namespace test;
using headrace::test::kCpuA;

std::vector<DeviceOptions> two_devices() {
  DeviceOptions first;
  first.setup.queues = {{.size = 16, .threshold = 8}, {.shared = false, .size = 4}};
  DeviceOptions second;
  second.setup.queues = {{.batches_allowed = false}};
  return {first, second};
}

TEST(DeviceSet, ShowsItsDevicesAsSysfsWould) {
  const auto set = DeviceSet::start(two_devices()).value();
  ASSERT_EQ(set->devices().size(), 2U);
  const dsa::Device& first = set->devices()[0];
  const dsa::Device& second = set->devices()[1];
  EXPECT_EQ(first.name, "dsa0");
  EXPECT_TRUE(first.unusable.empty());
  EXPECT_EQ(first.queues.at(0).file, "/dev/dsa/wq0.0");
  EXPECT_EQ(first.queues[0].credits(), 8U);
  EXPECT_EQ(first.queues.at(1).credits(), 4U);
  EXPECT_TRUE(first.queues[0].operations.has(Opcode::batch));
  EXPECT_EQ(second.queues.at(0).name, "wq1.0");
  EXPECT_FALSE(second.queues[0].operations.has(Opcode::batch)) << "as the kernel clears the bit";
}

TEST(DeviceSet, Queues_AreOpenedByName) {
  const auto set = DeviceSet::start(two_devices()).value();
  const auto open = set->opener();
  EXPECT_EQ(open({.name = "wq7.0"}).error().code, ErrorCode::absent);
  EXPECT_FALSE(open(set->devices()[1].queues[0]).value()->takes_batches());
  set->device(1).disable(0);
  EXPECT_EQ(open(set->devices()[1].queues[0]).error().code, ErrorCode::absent);
  EXPECT_TRUE(open(set->devices()[0].queues[0]).value()->takes_batches());
}

TEST(DeviceSet, Portal_ActsAsItsKindOfQueue) {
  const auto device = Device::open(two_devices()[0]).value();
  Client client;
  const std::vector<Descriptor> many(20, client.noop(0));
  const auto shared = open_portal(*device, 0).value();
  EXPECT_EQ(shared->submit(many).value_or(99), 8U);
  EXPECT_EQ(shared->submit(many).value_or(99), 0U);
  device->disable(0);
  EXPECT_EQ(shared->submit(many).error().code, ErrorCode::absent);
  EXPECT_EQ(open_portal(*device, 1).value()->submit(many).value_or(99), 20U);
  EXPECT_EQ(device->stats().dropped, 16U);
  device->enable(0);
  const auto written = open_portal(*device, 0, {.character_device = true}).value();
  EXPECT_FALSE(written->takes_batches());
  const Descriptor list[] = {client.noop(0), make(Opcode::batch, client.records[1])};
  EXPECT_EQ(written->submit(list).value_or(99), 1U);
  EXPECT_EQ(written->submit(std::span(list).subspan(1)).error().code, ErrorCode::invalid);
}

TEST(DeviceSet, ClosedPortal_WritesNothingMore) {
  const auto set =
      DeviceSet::start({{.rates = DeviceRates{.start_up = std::chrono::hours{1}}}}).value();
  auto portal = set->opener()(set->devices()[0].queues[0]).value();
  Client client;
  const Descriptor move = client.move(0, kPage, 64);
  ASSERT_EQ(portal->submit({&move, 1}).value_or(0), 1U);
  portal.reset();
  EXPECT_TRUE(set->device(0).idle());
  EXPECT_EQ(status_of(client.records[0]), 0);
}

Machine machine_with_dsa() {
  Machine machine = headrace::test::small_machine();
  machine.engines[raw(kCpuA)].kind = EngineKind::dsa;
  return machine;
}

class Outcomes final : public Completion {
 public:
  void complete(std::uint64_t tag, Status outcome) noexcept override {
    seen.emplace(tag, outcome.has_value());
  }
  std::multimap<std::uint64_t, bool> seen;
};

// The backend ends before the devices that it uses, with pieces in flight.
TEST(OpenBackend, PiecesInFlightAtTheEnd_EndOnce) {
  auto backend = open_backend(machine_with_dsa(), {kCpuA},
                              {.device = {.faults = {.lost_record_chance = 1}},
                               .limit = std::chrono::milliseconds{1}})
                     .value();
  EXPECT_EQ(backend->capabilities().note, "cpu0: shared wq0.0 by emulator");
  std::vector<std::byte> from(4096);
  std::vector<std::byte> to(4096);
  const MemoryRange source(from, headrace::test::kDram);
  const MemoryRange target(to, headrace::test::kHbm);
  Outcomes outcomes;
  const Piece piece{.from = whole(source), .to = whole(target), .engine = kCpuA, .tag = 1};
  ASSERT_EQ(backend->submit({&piece, 1}, outcomes).value_or(0), 1U);
  backend.reset();
  EXPECT_EQ(outcomes.seen, (std::multimap<std::uint64_t, bool>{{1, false}}));
}

TEST(OpenBackend, ImpossibleRequests_AreRefused) {
  const Machine machine = machine_with_dsa();
  EXPECT_EQ(open_backend(machine, {}).error().code, ErrorCode::invalid);
  EXPECT_EQ(open_backend(machine, {EngineId{99}}).error().code, ErrorCode::unsupported);
  DeviceOptions impossible;
  impossible.setup.engines = 9;
  EXPECT_EQ(open_backend(machine, {kCpuA}, {.device = impossible}).error().code,
            ErrorCode::invalid);
}

}  // namespace
}  // namespace headrace::emulator
