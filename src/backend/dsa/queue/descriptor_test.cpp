// SPDX-License-Identifier: Apache-2.0
#include "backend/dsa/queue/descriptor.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace headrace::dsa {
namespace {

TEST(Descriptor, FlagsAndOpcodeShareAWord) {
  Descriptor descriptor;
  descriptor.set(Opcode::copy_crc, flag::record_valid | flag::read_seed);
  EXPECT_EQ(descriptor.command, 0x11010004U);
  EXPECT_EQ(descriptor.opcode(), Opcode::copy_crc);
  EXPECT_EQ(descriptor.flags(), 0x010004U);
  EXPECT_TRUE(descriptor.has(flag::read_seed));
  EXPECT_FALSE(descriptor.has(flag::read_seed | flag::fence));
}

TEST(Descriptor, EveryOpcodeAndCodeHasANameOfItsOwn) {
  std::set<std::string> opcodes;
  std::set<std::string> codes;
  for (unsigned value = 0; value < 256; ++value) {
    opcodes.emplace(to_string(static_cast<Opcode>(value)));
    codes.emplace(to_string(static_cast<Code>(value)));
  }
  EXPECT_EQ(opcodes.size(), 16U + 1U) << "and one for the unknown";
  EXPECT_EQ(codes.size(), 26U + 1U);
  EXPECT_EQ(to_string(static_cast<Opcode>(0x2f)), "unknown");
  EXPECT_EQ(to_string(Code::page_fault), "page fault");
}

TEST(Descriptor, OpcodesAreBitsOfFourWords) {
  Opcodes opcodes;
  opcodes.set(Opcode::cache_flush);
  opcodes.set(Opcode::noop);
  EXPECT_EQ(opcodes.words()[0], 0x100000001U);
  opcodes.set(Opcode::noop, false);
  EXPECT_FALSE(opcodes.has(Opcode::noop));
  EXPECT_TRUE(opcodes.has(Opcode::cache_flush));
  EXPECT_EQ(opcodes & Opcodes{}, Opcodes{});
}

// The value of a Sapphire Rapids system, as `accel-config list` prints it (idxd-config issue 40).
TEST(Descriptor, GeneralCapabilitiesOfSapphireRapids) {
  const GeneralCapabilities capabilities{0x40915f0107};
  EXPECT_TRUE(capabilities.block_on_fault());
  EXPECT_TRUE(capabilities.overlap());
  EXPECT_TRUE(capabilities.readback());
  EXPECT_FALSE(capabilities.fill16());
  EXPECT_FALSE(capabilities.batch_continuation());
  EXPECT_FALSE(capabilities.batch_of_one());
  EXPECT_EQ(capabilities.max_transfer(), std::uint64_t{1} << 31);
  EXPECT_EQ(capabilities.max_batch(), 1024U);
}

}  // namespace
}  // namespace headrace::dsa
