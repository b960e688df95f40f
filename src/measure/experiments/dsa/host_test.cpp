// SPDX-License-Identifier: Apache-2.0
#include "measure/experiments/dsa/host.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "measure/experiments/dsa/testing.h"
#include "tests/support/dsa_sysfs.h"

namespace headrace::experiment_dsa {

using namespace instruments;

namespace {

using test::SoftwareDsaHost;

// The times of `rounds` rounds of all copies; or the first error.
Result<std::vector<DsaTimes>> run(const DsaHost& host, const std::vector<DsaThread>& threads,
                                  const DsaShape& shape, unsigned rounds) {
  BufferPool buffers(host.machine());
  auto made = host.prepare(threads, shape, buffers);
  if (!made) return Unexpected(std::move(made).error());
  std::vector<DsaTimes> times;
  for (unsigned i = 0; i < rounds; ++i) {
    auto round = (*made)->round();
    if (!round) return Unexpected(std::move(round).error());
    times.push_back(*std::move(round));
  }
  return times;
}

TEST(DsaHost, EveryMethodCopiesAll) {
  const SoftwareDsaHost ground({emulator::DeviceOptions{}});
  const DsaHost host = ground.host();
  for (const DsaMethod method : {DsaMethod::single, DsaMethod::batch, DsaMethod::vectored}) {
    DsaThread thread = ground.copy_of(64_KiB);
    thread.copies = 40;
    thread.method = method;
    thread.at_once = thread.window = method == DsaMethod::single ? 1 : 10;
    const std::uint64_t before = ground.device(0).stats().executed;
    const auto times = run(host, {thread, thread}, {}, 2);
    ASSERT_TRUE(times) << times.error().message;
    ASSERT_EQ(times->size(), 2U);
    for (const DsaTimes& round : *times) {
      EXPECT_EQ(round.each.size(), 2U);
      EXPECT_GE(round.all, std::max(round.each[0], round.each[1]));
      ASSERT_TRUE(round.cpu_seconds);
      EXPECT_GT(*round.cpu_seconds, 0);
      EXPECT_LE(*round.cpu_seconds, seconds(round.each[0] + round.each[1]) * 1.01 + 1e-3);
    }
    EXPECT_EQ(ground.device(0).stats().executed - before, 2U * 2U * 40U);
  }
}

// Opening one is part of no round.
TEST(DsaHost, PortalsAreOpenedOnceForAllRounds) {
  const SoftwareDsaHost ground({emulator::DeviceOptions{}});
  const DsaHost host = ground.host();
  DsaThread thread = ground.copy_of(4_KiB);
  thread.copies = 3;
  ASSERT_TRUE(run(host, {thread, thread}, {}, 3));
  EXPECT_EQ(ground.opened(), 2U);
}

TEST(DsaHost, ABatchTakenApartIsNoBatch) {
  const SoftwareDsaHost ground({emulator::DeviceOptions{}}, {.character_device = true});
  const DsaHost host = ground.host();
  DsaThread thread = ground.copy_of(4_KiB);
  thread.copies = thread.at_once = thread.window = 10;
  thread.method = DsaMethod::batch;
  EXPECT_EQ(run(host, {thread}, {}, 1).error().code, ErrorCode::unsupported);
}

TEST(DsaHost, SaysWhatIsNotConfigured) {
  const SoftwareDsaHost ground({emulator::DeviceOptions{}});
  const DsaHost host = ground.host();
  const DsaThread thread = ground.copy_of(4_KiB);
  const auto dedicated = run(host, {thread}, {.shared = false}, 1);
  EXPECT_EQ(dedicated.error().code, ErrorCode::absent);
  EXPECT_NE(dedicated.error().message.find("no dedicated queue"), std::string::npos);
  EXPECT_EQ(run(host, {thread}, {.engines = 4}, 1).error().code, ErrorCode::absent);
  DsaThread elsewhere = thread;
  elsewhere.to = NodeId{999};
  EXPECT_EQ(run(host, {elsewhere}, {}, 1).error().code, ErrorCode::absent);
  DsaThread cores = thread;
  cores.engine = EngineId{0};
  EXPECT_EQ(run(host, {cores}, {}, 1).error().code, ErrorCode::absent);
}

TEST(DsaHost, ADeviceThatFailsIsAnErrorNotATime) {
  emulator::DeviceOptions options;
  options.faults.hardware_chance = 1;
  const SoftwareDsaHost ground({options});
  const DsaHost host = ground.host();
  EXPECT_FALSE(run(host, {ground.copy_of(4_KiB)}, {}, 1));
}

// An emulated device's files may be mounted where the kernel has its own.
TEST(DsaHost, WhatIsNoCharacterDeviceIsNotHardware) {
  namespace fs = std::filesystem;
  const test::SysfsTree sysfs;
  sysfs.write("dev/wq0.0", "");
  Machine machine = *Machine::discover({.storage = {}});
  machine.engines = {{.id = EngineId{0}, .kind = EngineKind::dsa, .name = "dsa0"}};
  const auto emulated = find_dsa_host(machine, sysfs.roots());
  fs::remove(sysfs.roots().dev / "wq0.0");
  fs::create_symlink("/dev/null", sysfs.roots().dev / "wq0.0");
  const auto hardware = find_dsa_host(machine, sysfs.roots());
  ASSERT_FALSE(emulated);
  EXPECT_EQ(emulated.error().code, ErrorCode::unsupported);
  EXPECT_NE(emulated.error().message.find("wq0.0 is no character device"), std::string::npos);
  ASSERT_TRUE(hardware) << hardware.error().message;
  EXPECT_EQ(hardware->devices.size(), 1U);
}

}  // namespace
}  // namespace headrace::experiment_dsa
