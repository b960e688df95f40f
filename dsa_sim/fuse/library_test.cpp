// SPDX-License-Identifier: Apache-2.0
// The library on the files of the program, as on those of the kernel: found, opened, copied with.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <vector>

#include "backend/dsa/dsa.h"
#include "dsa_sim/fuse/program_testing.h"
#include "headrace/backend.h"
#include "headrace/dsa.h"
#include "headrace/machine.h"
#include "headrace/mover.h"
#include "headrace/random.h"
#include "tests/support/bytes.h"

namespace headrace {
namespace {

using emulator::test::Emulator;
using emulator::test::in_child;
using emulator::test::wait_for;

class OnEmulator : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = emulator::test::obstacle()) GTEST_SKIP() << *why;
  }
  void TearDown() override {
    unsetenv("HEADRACE_DSA_SYSFS");
    unsetenv("HEADRACE_DSA_DEV");
  }
  static void point_to(const Emulator& emulator) {
    setenv("HEADRACE_DSA_SYSFS", emulator.path("sys/bus/dsa/devices").c_str(), 1);
    setenv("HEADRACE_DSA_DEV", emulator.path("dev/dsa").c_str(), 1);
  }
};

// The devices of the emulator as this machine's, copying.
class Copier {
 public:
  explicit Copier(Nanoseconds limit = std::chrono::seconds{5}) {
    std::vector<EngineId> devices;
    for (const Engine& engine : machine_.engines) {
      if (engine.kind == EngineKind::dsa) devices.push_back(engine.id);
    }
    device_count = devices.size();
    auto backend = open_dsa(machine_, devices, {.limit = limit});
    EXPECT_TRUE(backend) << backend.error().message;
    if (backend) {
      note = (*backend)->capabilities().note;
      backends_.add(*std::move(backend));
    }
    mover_.emplace(machine_, backends_, MoverOptions{.route = place::brute_force, .piece = 64_KiB});
  }

  // Makes `count` copies of odd sizes; true if every byte arrived.
  bool copy(std::size_t count, std::uint64_t seed) {
    Random random(seed);
    for (std::size_t i = 0; i < count; ++i) {
      std::vector<std::byte> from = test::random_bytes(1 + random.below(400'000), seed + i);
      std::vector<std::byte> to(from.size());
      const NodeId node = machine_.nodes.front().id;
      const MemoryRange source(from, node);
      const MemoryRange target(to, node);
      if (!mover_->copy(whole(target), whole(source)).wait() || from != to) return false;
    }
    return true;
  }

  MoverStats stats() const { return mover_->stats(); }

  std::size_t device_count = 0;
  std::string note;

 private:
  Machine machine_ = Machine::discover({.storage = {}}).value();
  Backends backends_ = Backends::open(machine_).value();
  std::optional<Mover> mover_;
};

TEST_F(OnEmulator, FindsOpensAndCopies) {
  const Emulator emulator({"--layout", "1n2d1e1w"});
  point_to(emulator);
  const auto findings = examine_dsa();
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_EQ(findings[0].name, "dsa0");
  EXPECT_EQ(findings[0].state, DsaState::limited) << findings[0].why;
  Copier copier;
  EXPECT_EQ(copier.device_count, 2U);
  EXPECT_NE(copier.note.find("shared wq0.0 by write()"), std::string::npos) << copier.note;
  EXPECT_TRUE(copier.copy(50, 1));
  EXPECT_EQ(copier.stats().retries, 0U);
}

TEST_F(OnEmulator, FailingDescriptorsCostNoByte) {
  const Emulator emulator;
  point_to(emulator);
  ASSERT_EQ(emulator.control("fail 0.01 dsa0"), 0);
  ASSERT_EQ(emulator.control("fault-pages 0.1 dsa0"), 0);
  Copier copier;
  EXPECT_TRUE(copier.copy(100, 2));
}

TEST_F(OnEmulator, AQueueThatVanishesWhileInUseCostsNoByte) {
  const Emulator emulator;
  point_to(emulator);
  Copier copier(std::chrono::milliseconds{300});
  ASSERT_TRUE(copier.copy(5, 3));
  std::jthread operator_of_it([&] { EXPECT_EQ(emulator.control("disable wq0.0"), 0); });
  EXPECT_TRUE(copier.copy(20, 4));
  operator_of_it.join();
  EXPECT_TRUE(copier.copy(5, 5));
  EXPECT_EQ(emulator.control("enable wq0.0"), 0);
  EXPECT_TRUE(copier.copy(5, 6));
}

TEST_F(OnEmulator, AHaltedDeviceCostsNoByte) {
  const Emulator emulator;
  point_to(emulator);
  Copier copier(std::chrono::milliseconds{300});
  ASSERT_EQ(emulator.control("halt dsa0"), 0);
  EXPECT_TRUE(copier.copy(5, 7));
}

// A child has no portal of its parent's; what it opens itself works.
TEST_F(OnEmulator, AChildOpensItsOwn) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer ends a forked child that starts threads";
#endif
  const Emulator emulator;
  point_to(emulator);
  Copier parent;
  ASSERT_TRUE(parent.copy(2, 8));
  EXPECT_EQ(wait_for(in_child([] {
              Copier child;
              return child.device_count == 1 && child.copy(5, 9) ? 0 : 1;
            })),
            0);
  EXPECT_TRUE(parent.copy(2, 10));
}

}  // namespace
}  // namespace headrace
