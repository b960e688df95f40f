// SPDX-License-Identifier: Apache-2.0
// A Mover with eight software DSA devices: routes are split over them, and other engines retry the
// pieces that they fail.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "backend/cpu/cpu.h"
#include "headrace/mover.h"
#include "tests/support/bytes.h"
#include "tests/support/dsa/dsa.h"

namespace headrace {
namespace {

// Two sockets of Xeon Max: DRAM in nodes 0 to 7, HBM in 8 to 15, a device at each of the first.
class MoverDsa : public testing::Test {
 protected:
  void open(const emulator::BackendOptions& options, RoutePolicy route) {
    std::vector<EngineId> devices;
    std::vector<EngineId> cores;
    for (const Engine& engine : machine_.engines) {
      if (engine.kind == EngineKind::dsa) devices.push_back(engine.id);
      if (engine.kind == EngineKind::cpu) cores.push_back(engine.id);
    }
    ASSERT_EQ(devices.size(), 8U);
    backends_.add(open_cpu(machine_, cores, {.workers = 1}).value());
    backends_.add(emulator::open_backend(machine_, devices, options).value());
    mover_.emplace(machine_, backends_, MoverOptions{.route = std::move(route), .piece = 256_KiB});
  }

  // Copies and checks all bytes; returns the engines that copied.
  std::vector<std::string> copy(NodeId from, NodeId to, std::size_t bytes, std::uint64_t seed) {
    std::vector<std::byte> source = test::random_bytes(bytes, seed);
    std::vector<std::byte> target(bytes);
    const MemoryRange source_range(source, from);
    const MemoryRange target_range(target, to);
    const auto done = mover_->copy(whole(target_range), whole(source_range)).wait();
    EXPECT_TRUE(done.has_value()) << done.error().message;
    EXPECT_EQ(source, target);
    std::vector<std::string> names;
    if (!done) return names;
    for (const EngineId engine : done->engines) names.push_back(machine_.find(engine)->name);
    std::ranges::sort(names);
    return names;
  }

  const Machine machine_ = Machine::load("xeon-max").value();
  Backends backends_;
  std::optional<Mover> mover_;
};

TEST_F(MoverDsa, RoutePolicies_BruteForceUsesAllDevicesSmartTheNearOnes) {
  open({}, place::brute_force);
  EXPECT_EQ(copy(NodeId{0}, NodeId{15}, 8 << 20, 1).size(), 8U);
  mover_.emplace(machine_, backends_, MoverOptions{.route = place::smart});
  EXPECT_EQ(copy(NodeId{0}, NodeId{8}, 8 << 20, 2).size(), 4U);
  EXPECT_EQ(copy(NodeId{0}, NodeId{15}, 8 << 20, 3), (std::vector<std::string>{"dsa0", "dsa7"}));
}

TEST_F(MoverDsa, FailingDevices_DataIsCopiedByOtherEngines) {
  emulator::BackendOptions options;
  options.device.faults = {.page_fault_chance = 0.1, .hardware_chance = 0.01};
  options.portals.character_device = true;
  open(options, place::brute_force);
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    copy(NodeId{static_cast<std::uint32_t>(seed % 8)}, NodeId{15}, (seed << 19) + seed, seed);
  }
  EXPECT_EQ(mover_->stats().failed, 0U);
}

TEST_F(MoverDsa, SilentDevices_MovesEndWithinTheirBound) {
  emulator::BackendOptions options;
  options.device.faults.lost_record_chance = 0.1;
  options.limit = std::chrono::milliseconds{50};
  open(options, place::brute_force);
  for (std::uint64_t seed = 1; seed <= 4; ++seed) copy(NodeId{1}, NodeId{9}, 4 << 20, seed);
  EXPECT_GT(mover_->stats().retries, 0U);
}

}  // namespace
}  // namespace headrace
