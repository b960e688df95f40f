// SPDX-License-Identifier: Apache-2.0
#include "tests/support/dsa/device/backend.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "tests/support/machines.h"

namespace headrace::emulator {
namespace {

// One DSA engine for each of the small machine's memory nodes.
Machine machine_of_two() {
  Machine machine = headrace::test::small_machine();
  for (const EngineId id : {headrace::test::kCpuA, headrace::test::kCpuB}) {
    machine.engines[raw(id)].kind = EngineKind::dsa;
  }
  return machine;
}

class Tags final : public Completion {
 public:
  void complete(std::uint64_t tag, Status outcome) noexcept override {
    once = once && seen.insert(tag).second;
    well = well && outcome.has_value();
  }
  std::set<std::uint64_t> seen;
  bool once = true;
  bool well = true;
};

TEST(BackendOnDevices, EachEngineIsADeviceOfItsOwn) {
  const Machine machine = machine_of_two();
  const auto backend = open_backend(machine, {headrace::test::kCpuA, headrace::test::kCpuB});
  ASSERT_TRUE(backend) << backend.error().message;
  EXPECT_EQ((*backend)->capabilities().engines,
            (std::vector{headrace::test::kCpuA, headrace::test::kCpuB}));
  EXPECT_EQ((*backend)->capabilities().note,
            "cpu0: shared wq0.0 by emulator; cpu8: shared wq1.0 by emulator");
  std::vector<std::byte> from(1 << 16, std::byte{5});
  std::vector<std::byte> to(from.size());
  const MemoryRange source(from, headrace::test::kDram);
  const MemoryRange target(to, headrace::test::kHbm);
  Tags heard;
  for (std::uint64_t i = 0; i < 16; ++i) {
    const Piece piece{.from = {&source, i * 4096, 4_KiB},
                      .to = {&target, i * 4096, 4_KiB},
                      .engine = i % 2 == 0 ? headrace::test::kCpuA : headrace::test::kCpuB,
                      .tag = i};
    ASSERT_EQ((*backend)->submit({&piece, 1}, heard).value_or(0), 1U);
  }
  while (heard.seen.size() < 16) {
    (*backend)->poll();
    std::this_thread::yield();
  }
  EXPECT_TRUE(heard.once && heard.well);
  EXPECT_EQ(from, to);
}

// The backend goes before the devices it uses, with pieces in flight.
TEST(BackendOnDevices, GoesWithPiecesUnderWay) {
  DeviceOptions losing;
  losing.faults.lost_record_chance = 1;
  auto backend = open_backend(machine_of_two(), {headrace::test::kCpuA},
                              {.device = losing, .limit = std::chrono::milliseconds{1}})
                     .value();
  std::vector<std::byte> from(4096);
  std::vector<std::byte> to(4096);
  const MemoryRange source(from, headrace::test::kDram);
  const MemoryRange target(to, headrace::test::kHbm);
  Tags heard;
  const Piece piece{
      .from = whole(source), .to = whole(target), .engine = headrace::test::kCpuA, .tag = 1};
  ASSERT_EQ(backend->submit({&piece, 1}, heard).value_or(0), 1U);
  backend.reset();
  EXPECT_EQ(heard.seen, std::set<std::uint64_t>{1});
  EXPECT_TRUE(heard.once);
  EXPECT_FALSE(heard.well);
}

TEST(BackendOnDevices, RefusesWhatOpenDsaAndEmulationRefuse) {
  const Machine machine = machine_of_two();
  EXPECT_EQ(open_backend(machine, {}).error().code, ErrorCode::invalid);
  EXPECT_EQ(open_backend(machine, {headrace::test::kSsd}).error().code, ErrorCode::unsupported);
  EXPECT_EQ(open_backend(machine, {EngineId{99}}).error().code, ErrorCode::unsupported);
  DeviceOptions impossible;
  impossible.setup.queues = {{.group = 9}};
  EXPECT_EQ(open_backend(machine, {headrace::test::kCpuA}, {.device = impossible}).error().code,
            ErrorCode::invalid);
}

}  // namespace
}  // namespace headrace::emulator
