// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <fstream>
#include <list>
#include <optional>
#include <thread>

#include "backend/cuda/engines/engines.h"
#include "kvcache/kvcache_testing.h"

namespace headrace {
namespace {

using namespace test;

// The destination of loads. `mixed`: the first and every other load go to the GPU.
enum class Into { host, gpu, mixed };

// Blocks that are only on SSD, and overlapping loads of them.
struct KvCoalescing : testing::Test {
  void SetUp() override { start(); }
  // From now on, loads also go there.
  void use_gpu(Into where) {
    into = where;
    gpu.emplace("devices=1");
    rig.mover.reset();
    rig.backends.add(open_cuda(gpu->machine, {kGpuEngine}, {}).value());
    rig.mover =
        std::make_unique<Mover>(gpu->machine, rig.backends, MoverOptions{.route = place::one});
  }
  void start() {
    keys = kvcache::keys(rig.geometry, tokens(4 * 4));
    auto options = rig.options({16}, 8);
    options.load_ahead = 1_B;
    rig.open(options);
    const auto counts = rig.put(keys);
    ASSERT_EQ(counts->stored + counts->present, 4u);
    ASSERT_TRUE(rig.store->flush().has_value());
    rig.open(options);
    rig.files->read_bytes = 0;
  }
  struct Running {
    std::vector<kvcache::Key> keys;
    std::vector<std::byte> bytes;
    std::unique_ptr<MemoryRange> into;
    std::unique_ptr<Device> on_gpu;  // used instead, if set
    kvcache::Load load;
  };
  Running load(std::span<const kvcache::Key> of, const kvcache::LoadOptions& options = {}) {
    const Bytes size = rig.geometry.block() * of.size();
    Running run{.keys = {of.begin(), of.end()},
                .bytes = std::vector<std::byte>(size.value),
                .into = nullptr,
                .on_gpu = nullptr,
                .load = {}};
    if (into == Into::gpu || (into == Into::mixed && count++ % 2 == 0)) {
      run.on_gpu = std::make_unique<Device>(gpu->machine, size);
    } else {
      run.into = std::make_unique<MemoryRange>(run.bytes, kDram);
    }
    const Extent to = run.on_gpu ? whole(run.on_gpu->range) : whole(*run.into);
    run.load = rig.store->load(of, to, options).value();
    return run;
  }
  void expect_right(const Running& run) {
    const Status outcome = run.load.wait();
    ASSERT_TRUE(outcome.has_value()) << outcome.error().message;
    EXPECT_EQ(run.load.leading(), run.keys.size());
    const std::size_t size = run.bytes.size();
    EXPECT_EQ(run.on_gpu ? read_gpu(run.on_gpu->range, 0, size) : run.bytes,
              rig.blocks_of(run.keys));
  }
  // Continues as far as possible while files are held.
  void poll() {
    for (int i = 0; i < 100; ++i) rig.store->poll();
  }
  // How many pieces the Mover has been given.
  std::uint64_t asked() const {
    rig.mover->poll();
    const MoverStats stats = rig.mover->stats();
    return stats.in_flight_pieces + stats.queued_pieces;
  }
  std::uint64_t blocks_read() const {
    return rig.files->read_bytes.load() / rig.geometry.block().value;
  }

  std::optional<FakeGpu> gpu;  // outlives its users
  Into into = Into::host;
  unsigned count = 0;  // how many loads
  KvRig rig;
  std::vector<kvcache::Key> keys;
};

// Tests that hold for every destination of loads.
struct KvCoalescingInto : KvCoalescing, testing::WithParamInterface<Into> {
  void SetUp() override {
    if (GetParam() != Into::host) use_gpu(GetParam());
    start();
  }
};
INSTANTIATE_TEST_SUITE_P(Of, KvCoalescingInto, testing::Values(Into::host, Into::gpu, Into::mixed));

TEST_P(KvCoalescingInto, TwoLoadsReadABlockOnce) {
  for (const bool promote : {false, true}) {
    for (const bool layers : {false, true}) {
      for (const bool layers_too : {false, true}) {
        start();
        rig.files->held = true;
        const Running first = load(keys, {.layer_order = layers, .promote = promote});
        const Running second = load(keys, {.layer_order = layers_too, .promote = !promote});
        const Running third = load(std::span(keys).subspan(1));
        rig.files->release();
        expect_right(third);
        expect_right(second);
        expect_right(first);
        EXPECT_EQ(blocks_read(), 4u) << promote << layers << layers_too;
        EXPECT_EQ(rig.store->stats().pinned, 0_B);
      }
    }
  }
}

// Layers that were read into memory that other loads may not read are read again; others are not.
TEST_F(KvCoalescing, OnesThatComeLaterTakeWhatIsStillToBeHad) {
  for (const bool promote : {false, true}) {
    start();
    rig.files->held = true;
    const Running first = load(keys, {.promote = promote});
    rig.files->release();
    rig.files->held = true;
    poll();
    EXPECT_TRUE(first.load.poll(0));
    EXPECT_FALSE(first.load.poll(1));
    const Running second = load(keys, {.promote = false});
    poll();
    rig.files->release();
    expect_right(second);
    expect_right(first);
    const std::uint64_t layer = 4 * rig.geometry.fragment().value;
    EXPECT_EQ(rig.files->read_bytes, promote ? 3 * layer : 4 * layer);
  }
}

TEST_P(KvCoalescingInto, CancellingOneHurtsNoOther) {
  for (const bool promote : {false, true}) {
    for (const std::size_t cancelled : {0u, 1u, 2u}) {
      start();
      rig.files->held = true;
      std::vector<Running> loads;
      for (int i = 0; i < 3; ++i) loads.push_back(load(keys, {.promote = promote}));
      loads[cancelled].load.cancel();
      rig.files->release();
      for (std::size_t i = 0; i < 3; ++i) {
        if (i != cancelled) expect_right(loads[i]);
      }
      (void)loads[cancelled].load.wait();
      EXPECT_EQ(rig.store->stats().pinned, 0_B);
      EXPECT_EQ(rig.store->stats().damaged, 0u);
    }
  }
}

TEST_P(KvCoalescingInto, WhatIsCancelledDoesNotWaitForWhoReads) {
  rig.files->held = true;
  const Running first = load(keys, {.layer_order = false});
  const Running second = load(keys, {.layer_order = false});
  second.load.cancel();
  rig.store->poll();
  EXPECT_TRUE(second.load.done());
  EXPECT_EQ(second.load.wait().error().code, ErrorCode::cancelled);
  EXPECT_FALSE(first.load.done());
  rig.files->release();
  expect_right(first);
  EXPECT_EQ(blocks_read(), 4u);
}

// A follower of a cancelled load reads for later loads.
TEST_P(KvCoalescingInto, NobodyFollowsALoadThatWasCancelled) {
  rig.files->held = true;
  const Running first = load(keys, {.layer_order = false});
  first.load.cancel();
  const Running second = load(keys, {.layer_order = false});
  const Running third = load(keys, {.layer_order = false});
  rig.files->release();
  expect_right(second);
  expect_right(third);
  EXPECT_FALSE(first.load.wait().has_value());
  EXPECT_LE(blocks_read(), 8u);
}

// Each load compares its own copy: none serves a torn block.
TEST_P(KvCoalescingInto, ATornBlockIsServedToNeither) {
  std::fstream file(rig.folder.path / "blocks", std::ios::in | std::ios::out | std::ios::binary);
  for (std::size_t slot = 0; slot < 8; ++slot) {
    file.seekp(static_cast<std::streamoff>(slot * 4096 + rig.geometry.fragment().value + 3));
    file << "torn";
  }
  file.close();
  rig.files->held = true;
  const Running first = load(keys);
  const Running second = load(keys);
  rig.files->release();
  for (const Running* run : {&first, &second}) {
    EXPECT_FALSE(run->load.wait_layer(1).has_value());
    EXPECT_EQ(run->load.wait().error().code, ErrorCode::io);
    EXPECT_EQ(run->load.leading(), 0u);
  }
  EXPECT_EQ(rig.store->stats().damaged, 4u);
  EXPECT_EQ(rig.store->stats().pinned, 0_B);
}

// A reader that is not urgent becomes as urgent as its follower, from the follower's begin or
// later.
TEST_F(KvCoalescing, WhoReadsIsAsUrgentAsWhoFollows) {
  enum class Urgent { no, later, at_once };
  for (const Urgent urgent : {Urgent::no, Urgent::later, Urgent::at_once}) {
    start();
    rig.files->held = true;
    const kvcache::LoadOptions plan = {
        .layer_order = false, .priority = Priority::prefetch, .promote = false};
    kvcache::LoadOptions patient = plan;
    patient.deadlines.assign(3, std::chrono::hours{1});
    const Running other = load({&keys[1], 1}, plan);
    const Running first = load({&keys[0], 1}, patient);
    const bool demand = urgent == Urgent::at_once;
    const Running second =
        load({&keys[0], 1},
             demand ? kvcache::LoadOptions{.layer_order = false, .promote = false} : patient);
    if (urgent == Urgent::later) second.load.urgent(0);
    rig.files->release();
    std::string order;
    first.load.on_layer(0, [&] { order += "A"; });
    other.load.on_layer(0, [&] { order += "B"; });
    second.load.on_layer(0, [&] { order += "C"; });
    for (int i = 0; i < 100 && order.size() < 3; ++i) rig.store->poll();
    EXPECT_EQ(order, urgent == Urgent::no ? "BAC" : "ACB");
    expect_right(first);
    expect_right(other);
    expect_right(second);
    EXPECT_EQ(blocks_read(), 2u);
  }
}

// The other bytes that the reader reads with the block would take longer than reading it again.
TEST_P(KvCoalescingInto, ASmallOneWaitsForNoLargeOne) {
  for (const bool urgent : {false, true}) {
    start();
    rig.files->held = true;
    const Running large =
        load(keys, {.layer_order = false, .priority = Priority::prefetch, .promote = false});
    const std::uint64_t before = asked();
    const Running small = load({&keys[2], 1}, {.priority = Priority::prefetch, .promote = false});
    if (urgent) small.load.urgent(0);
    EXPECT_GT(asked(), before);
    // The small load has the bytes of a whole layer, so this one follows.
    const Running same = load({&keys[2], 1}, {.priority = Priority::prefetch, .promote = false});
    rig.files->release();
    expect_right(small);
    expect_right(same);
    expect_right(large);
    EXPECT_EQ(blocks_read(), 5u);
  }
}

// A group with a near deadline waits for no turn, so it follows no group that has none yet.
TEST_F(KvCoalescing, AnUrgentOneFollowsNobodyInLine) {
  rig.files->held = true;
  const Running first = load({&keys[0], 1}, {.promote = false});
  const Running second = load({&keys[2], 1}, {.promote = false});  // a layer of each is read
  const Running in_line = load({&keys[1], 1}, {.layer_order = false, .promote = false});
  const std::uint64_t before = asked();
  const kvcache::LoadOptions now = {.layer_order = false,
                                    .deadlines = std::vector<Nanoseconds>(3, Nanoseconds{0}),
                                    .promote = false};
  const Running urgent = load({&keys[1], 1}, now);
  const std::uint64_t then = asked();
  EXPECT_GT(then, before);
  const Running too = load({&keys[0], 1}, now);  // the first has higher layers in line
  EXPECT_GT(asked(), then);
  rig.files->release();
  expect_right(urgent);
  expect_right(too);
  expect_right(in_line);
  expect_right(second);
  expect_right(first);
  EXPECT_EQ(blocks_read(), 3u);  // the load in line followed it
}

// If a followed load is cancelled or fails, its followers neither all read nor all at once.
TEST_P(KvCoalescingInto, OneOfManyReadsWhatAnotherDidNot) {
  for (const bool fails : {false, true}) {
    for (const bool whole_blocks : {false, true}) {
      start();
      rig.files->held = true;
      const kvcache::LoadOptions how = {.layer_order = !whole_blocks, .promote = false};
      const Running first = load(keys, how);
      const std::uint64_t before = asked();
      std::list<Running> others;
      for (int i = 0; i < 20; ++i) others.push_back(load(keys, how));
      poll();
      EXPECT_LE(asked(), 2 * before);  // two layers at a time
      if (fails) rig.files->fail_chance = 1;
      if (!fails) first.load.cancel();
      rig.files->release();
      rig.files->fail_chance = 0;
      rig.files->held = true;
      poll();
      EXPECT_LE(asked(), 2 * keys.size());
      rig.files->release();
      for (const Running& other : others) expect_right(other);
      EXPECT_FALSE(first.load.wait().has_value());
      EXPECT_LE(blocks_read(), 2 * keys.size()) << fails << whole_blocks;
      EXPECT_EQ(rig.store->stats().pinned, 0_B);
    }
  }
}

// Loads whose copy does not fit read once more: the block may be right, and their memory, or that
// of the load that they follow, overwritten.
TEST_F(KvCoalescing, WhatAUserWritesHurtsNoOther) {
  for (const bool torn : {false, true}) {
    start();
    rig.files->held = true;
    const kvcache::LoadOptions how = {.layer_order = false, .promote = false};
    Running first = load(keys, how);
    std::list<Running> others;
    for (int i = 0; i < 5; ++i) others.push_back(load(keys, how));
    if (torn) rig.files->torn_after = 0;
    rig.files->release();
    rig.files->torn_after = UINT64_MAX;
    if (!torn) first.bytes[5] ^= std::byte{1};
    rig.files->held = true;
    poll();
    EXPECT_LE(asked(), (torn ? 3 : 2) * keys.size());
    rig.files->release();
    for (const Running& other : others) expect_right(other);
    expect_right(first);
    EXPECT_EQ(rig.store->stats().pinned, 0_B);
    EXPECT_EQ(rig.store->stats().damaged, 0u);
  }
}

// The folder's own blocks need no comparison, but memory of another load may have been overwritten.
TEST_F(KvCoalescing, WhatAUserWritesHurtsNoOtherWhereBlocksAreTrusted) {
  keys = kvcache::keys(rig.geometry, tokens(4 * 4, 1000));
  auto options = rig.options({1}, 8);
  options.tiers.back().verify = kvcache::Verify::found;
  rig.open(options);
  for (const kvcache::Key& key : keys) ASSERT_EQ(rig.put({&key, 1})->stored, 1u);
  rig.settle();
  keys.pop_back();  // in memory
  rig.files->held = true;
  const kvcache::LoadOptions how = {.layer_order = false, .promote = false};
  Running first = load(keys, how);
  const Running other = load(keys, how);
  rig.files->release();
  first.bytes[5] ^= std::byte{1};
  expect_right(other);
  EXPECT_TRUE(first.load.wait().has_value());
}

// One load has the same block at two positions.
TEST_P(KvCoalescingInto, ALoadDoesNotFollowItself) {
  const std::vector<kvcache::Key> twice = {keys[0], keys[0]};
  expect_right(load(twice));
}

TEST(KvCoalescingLoads, ManyThreadsLoadTheSame) {
  KvRig rig({}, true);
  rig.worker = true;
  rig.open({6}, 16);
  const auto keys = kvcache::keys(rig.geometry, tokens(4 * 12));
  for (const kvcache::Key& key : keys) ASSERT_TRUE(rig.put({&key, 1}).has_value());
  ASSERT_TRUE(rig.store->flush().has_value());
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (unsigned n = 0; n < 3; ++n) {
    threads.emplace_back([&, n] {
      for (unsigned i = 0; i < 40; ++i) {
        std::vector<std::byte> bytes(rig.geometry.block().value * keys.size());
        const MemoryRange memory(bytes, kDram);
        const auto load = rig.store->load(
            keys, whole(memory), {.layer_order = (i + n) % 2 == 0, .promote = (i + n) % 3 != 0});
        if (!load) {
          ++wrong;
          continue;
        }
        const bool cancelled = (i + n) % 5 == 0;
        if (cancelled) load->cancel();
        const Status outcome = load->wait();
        if (!cancelled && !outcome) ++wrong;
        if (outcome && bytes != rig.blocks_of(keys)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_EQ(rig.store->stats().pinned, 0_B);
  EXPECT_EQ(rig.store->stats().damaged, 0u);
}

}  // namespace
}  // namespace headrace
