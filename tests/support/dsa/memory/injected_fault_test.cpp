// SPDX-License-Identifier: Apache-2.0
#include "tests/support/dsa/memory/injected_fault.h"

#include <gtest/gtest.h>

namespace headrace::emulator {
namespace {

Descriptor move_of(std::uint32_t size) {
  Descriptor descriptor;
  descriptor.set(Opcode::memmove, 0);
  descriptor.size = size;
  return descriptor;
}

TEST(Faults, NothingGoesWrongUnlessAsked) {
  Random random(1);
  for (std::uint64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(draw({}, move_of(100), i, random).kind, InjectedFault::Kind::none);
  }
}

TEST(Faults, TheScriptComesFirst) {
  Random random(1);
  DeviceFaults faults{.hardware_chance = 1};
  faults.script = [](const Descriptor&, std::uint64_t number) {
    return number == 3 ? InjectedFault{.kind = InjectedFault::Kind::lost_record} : InjectedFault{};
  };
  EXPECT_EQ(draw(faults, move_of(100), 3, random).kind, InjectedFault::Kind::lost_record);
  const InjectedFault other = draw(faults, move_of(100), 4, random);
  EXPECT_EQ(other.kind, InjectedFault::Kind::status);
  EXPECT_EQ(other.status, 0x20);
}

TEST(Faults, PageFaultsLieWithinTheTransfer) {
  Random random(1);
  const DeviceFaults faults{.page_fault_chance = 1};
  Descriptor batch;
  batch.set(Opcode::batch, 0);
  batch.size = 10;
  std::uint32_t most = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    EXPECT_LT(draw(faults, move_of(100), i, random).at, 100U);
    EXPECT_EQ(draw(faults, move_of(0), i, random).at, 0U);
    most = std::max(most, draw(faults, batch, i, random).at);
  }
  EXPECT_GT(most, 576U) << "of a batch: of its list";
  EXPECT_LT(most, 640U);
}

// A script therefore changes nothing for other descriptors.
TEST(Faults, TheSameNumberOfDrawsForEach) {
  const auto after = [](const DeviceFaults& faults) {
    Random random(7);
    for (std::uint64_t i = 0; i < 10; ++i) draw(faults, move_of(100), i, random);
    return random();
  };
  DeviceFaults scripted{.page_fault_chance = 0.5, .hardware_chance = 0.5};
  scripted.script = [](const Descriptor&, std::uint64_t number) {
    return number % 2 == 0 ? InjectedFault{.kind = InjectedFault::Kind::lost_record}
                           : InjectedFault{};
  };
  EXPECT_EQ(after({}), after(scripted));
}

}  // namespace
}  // namespace headrace::emulator
