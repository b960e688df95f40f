// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <string_view>
#include <thread>

#include "kvcache/kvcache_testing.h"

namespace headrace {
namespace {

using namespace test;

struct KvStreams : testing::Test {
  void SetUp() override { rig.open({{kDram, 8}}, 16); }

  GpuRig rig;
  std::vector<kvcache::Key> keys = kvcache::keys(rig.geometry, tokens(4 * 4));
  Device memory{rig.gpu.machine, rig.bytes_of(4)};
};

TEST_F(KvStreams, AreWaitedForBeforeBlocksAreRead) {
  HeldStream held;
  write_gpu(memory.range, 0, std::vector<std::byte>(rig.bytes_of(4).value));
  const auto stored = rig.store->store(keys, whole(memory.range), {.stream = held.number()});
  ASSERT_TRUE(stored.has_value()) << stored.error().message;
  const auto again = rig.store->store(std::span(keys).first(1), whole(memory.range));
  EXPECT_FALSE(again->done());  // the first may still fail
  EXPECT_EQ(stored->wait(std::chrono::milliseconds{20}).error().code, ErrorCode::timed_out);
  EXPECT_EQ(rig.store->match(keys).size(), 0u);
  EXPECT_EQ(rig.store->stats().in_flight, rig.bytes_of(4));
  write_gpu(memory.range, 0, rig.blocks_of(keys));  // as the work queued there computes them
  held.released = true;
  EXPECT_EQ(stored->wait()->stored, 4u);
  EXPECT_EQ(again->wait()->present, 1u);
  EXPECT_TRUE(rig.get(keys).has_value());
}

TEST_F(KvStreams, AreWaitedForBeforeMemoryIsWritten) {
  ASSERT_EQ(rig.put(keys)->stored, 4u);
  HeldStream held;
  const std::vector<std::byte> before(rig.bytes_of(4).value, std::byte{9});
  write_gpu(memory.range, 0, before);
  const auto load = rig.store->load(keys, whole(memory.range), {.stream = held.number()});
  ASSERT_TRUE(load.has_value()) << load.error().message;
  EXPECT_EQ(load->wait_layer(0, std::chrono::milliseconds{20}).error().code, ErrorCode::timed_out);
  EXPECT_EQ(read_gpu(memory.range, 0, before.size()), before);
  held.released = true;
  EXPECT_TRUE(load->wait().has_value());
  EXPECT_EQ(read_gpu(memory.range, 0, before.size()), rig.blocks_of(keys));
  // The default stream, which has no work.
  const auto other = rig.store->load(keys, whole(memory.range), {.stream = 0});
  ASSERT_TRUE(other.has_value()) << other.error().message;
  EXPECT_TRUE(other->wait().has_value());
}

TEST_F(KvStreams, ThatDoNotComeAreGivenUpWhenAsked) {
  ASSERT_EQ(rig.put(std::span(keys).first(2))->stored, 2u);
  HeldStream held;
  const auto load =
      rig.store->load(std::span(keys).first(2), whole(memory.range), {.stream = held.number()});
  ASSERT_TRUE(load.has_value());
  load->cancel();
  EXPECT_EQ(load->wait().error().code, ErrorCode::cancelled);
  EXPECT_EQ(load->leading(), 0u);
  EXPECT_EQ(rig.store->stats().pinned, 0_B);
  const auto stored = rig.store->store(keys, whole(memory.range), {.stream = held.number()});
  const auto pending =
      rig.store->load(std::span(keys).first(2), whole(memory.range), {.stream = held.number()});
  rig.store.reset();  // ends both, without the stream
  ASSERT_TRUE(stored->done() && pending->done());
  EXPECT_EQ(*stored->poll(), (kvcache::StoredCounts{.present = 2, .failed = 2}));
  EXPECT_EQ(pending->wait().error().code, ErrorCode::cancelled);
}

// Loads and stores that wait for a stream keep no slots from others.
TEST_F(KvStreams, AreWaitedForWithoutSlots) {
  ASSERT_EQ(rig.put(keys)->stored, 4u);
  ASSERT_TRUE(rig.store->flush().has_value());
  rig.open({{kDram, 4}}, 16);
  HeldStream held;
  const auto load = rig.store->load(keys, whole(memory.range), {.stream = held.number()});
  ASSERT_TRUE(load.has_value()) << load.error().message;
  EXPECT_EQ(rig.store->stats().tiers[0].blocks, 0u);
  held.released = true;
  EXPECT_TRUE(load->wait().has_value());
  EXPECT_EQ(rig.store->stats().tiers[0].blocks, 4u);
}

TEST_F(KvStreams, OfNoGpuOrAnotherAreRefused) {
  ASSERT_EQ(rig.put(keys)->stored, 4u);
  HeldStream held;
  const Device other(rig.gpu.machine, rig.bytes_of(4), kOtherGpu);
  const auto foreign = rig.store->load(keys, whole(other.range), {.stream = held.number()});
  ASSERT_FALSE(foreign.has_value());
  EXPECT_EQ(foreign.error().code, ErrorCode::invalid);
  EXPECT_NE(foreign.error().message.find("another context"), std::string_view::npos);
  std::vector<std::byte> bytes(rig.bytes_of(4).value);
  const MemoryRange host(bytes, kDram);
  const auto none = rig.store->store(keys, whole(host), {.stream = held.number()});
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().code, ErrorCode::invalid);
  EXPECT_EQ(rig.store->stats().pinned, 0_B);
}

// As on a GH200: node 0 is both the host's and the GPU's.
TEST(KvStreamsOfNumaGpus, AreWaitedFor) {
  const FakeCudaLibrary library("paradigm=ats,numa_node=0");
  const Machine machine = *Machine::discover({.storage = {}});
  ASSERT_TRUE(machine.find(NodeId{0})->gpu);
  const Backends backends = Backends::open(machine).value();
  Mover mover(machine, backends);
  const kvcache::Geometry geometry = small_geometry();
  auto store = kvcache::Store::open(
      mover,
      {.geometry = geometry, .tiers = {{.budget = 32_KiB, .memory = Placement::on(NodeId{0})}}});
  ASSERT_TRUE(store.has_value()) << store.error().message;
  const auto buffer = allocate(machine, geometry.block() * 2, Placement::on(NodeId{0}));
  ASSERT_TRUE(buffer.has_value()) << buffer.error().message;
  ASSERT_FALSE((*buffer)->device_address());
  const auto two = kvcache::keys(geometry, tokens(2 * 4));
  HeldStream held;
  const auto stored =
      (*store)->store(two, {buffer->get(), 0, geometry.block() * 2}, {.stream = held.number()});
  ASSERT_TRUE(stored.has_value()) << stored.error().message;
  EXPECT_EQ(stored->wait(std::chrono::milliseconds{20}).error().code, ErrorCode::timed_out);
  held.released = true;
  EXPECT_EQ(stored->wait()->stored, 2u);
}

}  // namespace
}  // namespace headrace
