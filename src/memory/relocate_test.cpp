// SPDX-License-Identifier: Apache-2.0
// relocate() on a host with one node; the guest tests (tests/guest) move pages between nodes.

#include <gtest/gtest.h>

#include "headrace/buffer.h"
#include "memory/memory_testing.h"

namespace headrace {
namespace {

TEST(Relocate, ToItsPresentNodes_ChangesNothing) {
  const Machine machine = this_host();
  const auto buffer = allocate(machine, 1_MiB, on_first(machine)).value();
  std::byte* const memory = buffer->memory();
  buffer->bytes()[5000] = std::byte{7};
  Placement wish = Placement::on(NodeKind::dram);
  wish.strict = false;
  ASSERT_TRUE(relocate(machine, *buffer, wish));
  EXPECT_EQ(buffer->memory(), memory);
  EXPECT_EQ(buffer->bytes()[5000], std::byte{7});
  EXPECT_FALSE(buffer->placement().strict);
  EXPECT_EQ(buffer->node(), machine.nodes.front().id);
  EXPECT_EQ(where(buffer->bytes())->total(), pages_in(1_MiB));
}

TEST(Relocate, RefusesWhatAllocateRefuses) {
  const Machine machine = this_host();
  const auto buffer = allocate(machine, 1_MiB, on_first(machine)).value();
  EXPECT_EQ(relocate(machine, *buffer, Placement::on(NodeId{777})).error().code, ErrorCode::absent);
  EXPECT_EQ(relocate(machine, *buffer, {}).error().code, ErrorCode::invalid);
  EXPECT_EQ(buffer->placement().nodes.front().node, machine.nodes.front().id);
}

}  // namespace
}  // namespace headrace
