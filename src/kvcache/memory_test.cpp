// SPDX-License-Identifier: Apache-2.0
// Runs out of memory: each allocation of a scenario fails in turn, alone or with all later ones, in
// the calling thread and in the store's. This costs blocks and errors. Nothing may hang, end the
// program, stay pinned or return wrong bytes.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <new>

#include "backend/cuda/engines/engines.h"
#include "kvcache/kvcache_testing.h"
#include "tests/support/failing_new_testing.h"
#include "tests/support/fake_cuda/spared_driver.h"
#include "tests/support/plain_backend.h"

#if !defined(HEADRACE_TSAN)

namespace {

// The operator new of this program: the allocation that counts `until_failure` down to 0 fails, and
// with `and_after` all later ones. Used in the thread of a scenario and in the store's.
constinit std::atomic<bool> armed = false;
constinit std::atomic<bool> and_after = false;
constinit std::atomic<bool> has_failed = false;
constinit std::atomic<std::ptrdiff_t> until_failure = 0;
constinit std::atomic<std::size_t> failures_of_worker = 0;
constinit thread_local bool of_scenario = false;

}  // namespace

// Threads of backends and of the fake driver never fail: they are not part of the store.
bool headrace::test::allocation_fails() noexcept {
  if (!armed || in_driver || (!of_scenario && !this_thread_is("headrace-kv"))) return false;
  const std::ptrdiff_t left = --until_failure;
  if (left > 0 || (left < 0 && !and_after)) return false;
  has_failed = true;
  if (!of_scenario) ++failures_of_worker;
  return true;
}

namespace headrace {
namespace {

using namespace test;

struct Scene {
  bool worker = false;
  bool gpu = false;
  bool any_size = false;  // each block has three slots
};

class KvMemory : public testing::Test {
 protected:
  void start(const Scene& scene) {
    scene_ = scene;
    if (scene.gpu) gpu_.emplace("devices=1");
    machine_ = scene.gpu ? gpu_->machine : rig_.machine;
    backends_.add(std::make_unique<PlainBackend>(std::vector{kCpuA, kCpuB}, true));
    backends_.add(std::make_unique<FileBackend>());
    if (scene.gpu) {
      driver_ = **cuda::driver();
      spare_all(driver_);
      backends_.add(open_cuda(machine_, {kGpuEngine}, {.driver = &driver_}).value());
    }
    mover_ = std::make_unique<Mover>(machine_, backends_,
                                     MoverOptions{.route = place::one, .poller = scene.worker});
    if (scene.gpu) on_gpu_.emplace(machine_, Bytes{target_.size()});
    warm_up();
    if (scene.any_size) rig_.geometry = any_size_geometry(false);
    kvcache::StoreOptions options =
        scene.any_size ? rig_.options({9, 6}, 24) : rig_.options({3, 2}, 8);
    options.workers = scene.worker ? 1 : 0;
    if (scene.gpu) options.tiers[0].memory = Placement::on(kGpu);
    auto made = kvcache::Store::open(*mover_, options);
    CHECK(made.has_value());
    store_ = std::move(*made);
  }
  // The threads of the fake driver start with the first copies, and take the caller's name.
  void warm_up() {
    if (!scene_.gpu) return;
    for (int i = 0; i < 8; ++i) {
      ASSERT_TRUE(mover_->copy(whole(on_gpu_->range), whole(memory_)).wait().has_value());
      ASSERT_TRUE(mover_->copy(whole(into_), whole(on_gpu_->range)).wait().has_value());
    }
  }
  // The memory of four blocks, one after the other.
  std::vector<Extent> extents(const Object& object, std::size_t blocks) const {
    if (!scene_.any_size) return {whole(object).part(0, Bytes{blocks * block_})};
    std::vector<Extent> extents;
    for (std::size_t i = 0; i < blocks; ++i) {
      extents.push_back({&object, i * block_, Bytes{block_}});
    }
    return extents;
  }
  // With a worker, the worker runs the jobs.
  void until(const std::function<bool()>& done) {
    for (int i = 0; i < 10'000 && !done(); ++i) {
      if (!scene_.worker) store_->poll();
      if (scene_.worker) std::this_thread::sleep_for(std::chrono::microseconds{50});
    }
  }

  // Stores, demotes, writes, loads and promotes, as far as there is memory.
  void scenario(std::size_t first) {
    const auto keys = std::span(keys_).subspan(first, 4);
    const auto attempt = [](const auto& what) {
      try {
        what();
      } catch (const std::bad_alloc&) {  // for the calls of this function
      }
    };
    attempt([&] {
      const auto stored = store_->store(keys, extents(memory_, 4));
      if (stored) until([&] { return stored->done(); });
    });
    attempt([&] { (void)store_->flush(std::chrono::seconds{1}); });
    for (const bool promote : {true, false, true}) {
      attempt([&] {
        const kvcache::Match match = store_->match(keys);
        loads_.reserve(loads_.size() + 2);
        const Object& target = scene_.gpu ? static_cast<const Object&>(on_gpu_->range) : into_;
        const auto into = extents(target, match.size());
        const auto also = extents(also_, match.size());
        auto load = store_->load(match.keys(), into, {.promote = promote});
        if (load) loads_.push_back(*load);
        auto same = store_->load(match.keys(), also, {.layer_order = promote});
        if (same) loads_.push_back(*same);
        if (load) until([&] { return load->done(); });
        if (same) until([&] { return same->done(); });
      });
      attempt([&] { store_->poll(); });
    }
  }
  // Blocks that are there are correct, and nothing is pinned.
  void check() {
    for (const kvcache::Load& load : loads_) (void)load.wait();
    loads_.clear();
    for (int i = 0; i < 10; ++i) store_->poll();
    until([&] { return store_->stats().in_flight == 0_B; });
    const kvcache::StoreStats stats = store_->stats();
    EXPECT_EQ(stats.pinned, 0_B);
    EXPECT_EQ(stats.in_flight, 0_B);
    EXPECT_EQ(stats.damaged, 0u);
    const std::size_t block = block_;
    std::vector<kvcache::Key> there;
    std::vector<std::byte> right;
    std::vector<kvcache::Match> held;  // the store's thread may drop others at any time
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      held.push_back(store_->match({&keys_[i], 1}));
      if (held.back().size() == 0) continue;
      there.push_back(keys_[i]);
      const std::byte* const of_key = source_.data() + i % 4 * block;
      right.insert(right.end(), of_key, of_key + block);
    }
    if (there.empty()) return;
    std::vector<std::byte> bytes(right.size());
    const MemoryRange target(bytes, kDram);
    const auto load = store_->load(there, extents(target, there.size()), {.layer_order = false});
    ASSERT_TRUE(load.has_value()) << load.error().message;
    const Status outcome = load->wait();
    ASSERT_TRUE(outcome.has_value()) << outcome.error().message;
    EXPECT_EQ(bytes, right);
  }

  // Runs all with each allocation failing, or every `step`-th.
  void fail_each(std::ptrdiff_t step = 1) {
    for (const bool all : {false, true}) {
      and_after = all;
      std::size_t failures = 0;
      has_failed = true;
      for (std::ptrdiff_t n = 1; has_failed; n += step) {
        has_failed = false;
        until_failure = n;
        of_scenario = armed = true;
        scenario(static_cast<std::size_t>(n) % 4 * 4);
        of_scenario = armed = false;
        failures += has_failed ? 1 : 0;
        check();
        if (HasFailure()) FAIL() << "allocation " << n << (all ? " and all after" : "");
      }
      EXPECT_GT(failures, 20u);
    }
  }

  Scene scene_;
  KvRig rig_;
  const std::size_t block_ = rig_.geometry.block().value;
  std::optional<FakeGpu> gpu_;
  cuda::Driver driver_;
  Machine machine_;
  Backends backends_;
  std::unique_ptr<Mover> mover_;
  const std::vector<kvcache::Key> keys_ = kvcache::keys(rig_.geometry, tokens(4 * 16));
  std::vector<std::byte> source_ = rig_.blocks_of(std::span(keys_).first(4));
  const MemoryRange memory_{source_, kDram};
  std::vector<std::byte> target_ = std::vector<std::byte>(source_.size());
  const MemoryRange into_{target_, kDram};
  std::vector<std::byte> other_ = std::vector<std::byte>(source_.size());
  const MemoryRange also_{other_, kDram};  // for a second load of the same blocks at the same time
  std::optional<Device> on_gpu_;
  std::vector<kvcache::Load> loads_;
  std::unique_ptr<kvcache::Store> store_;
};

TEST_F(KvMemory, ThatRunsOutCostsBlocksOnly) {
  start({});
  fail_each();
}

TEST_F(KvMemory, ThatRunsOutInItsThreadCostsBlocksOnly) {
  failures_of_worker = 0;
  start({.worker = true});
  fail_each();
  EXPECT_GT(failures_of_worker, 20u);
}

TEST_F(KvMemory, ThatRunsOutCostsBlocksOfAnySizeOnly) {
  start({.any_size = true});
  fail_each();
}

TEST_F(KvMemory, ThatRunsOutCostsBlocksOfGpusOnly) {
  failures_of_worker = 0;
  start({.worker = true, .gpu = true});
  fail_each(5);  // most are in allocate(), which inspects the host for each passage
  EXPECT_GT(failures_of_worker, 20u);
}

// A load that the store still counts as going on would excuse the match.
TEST_F(KvMemory, ThatRunsOutInARefusedLoad_LeavesNoLoadBehind) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // the child of a fork() abandons the store
  start({});
  const kvcache::Key nowhere{1, 2};
  const Extent into = whole(into_).part(0, rig_.geometry.block());
  std::ptrdiff_t n = 0;
  do {
    has_failed = false;
    until_failure = ++n;
    of_scenario = armed = true;
    try {
      (void)store_->load({&nowhere, 1}, into);
    } catch (const std::bad_alloc&) {  // expected
    }
    of_scenario = armed = false;
  } while (has_failed);
  EXPECT_GT(n, 3);
  const auto stored = store_->store(std::span(keys_).first(4), whole(memory_));
  ASSERT_TRUE(stored.has_value() && stored->wait().has_value());
  const kvcache::Match held = store_->match(std::span(keys_).first(1));
  ASSERT_EQ(held.size(), 1u);
  EXPECT_DEATH(store_.reset(), "no_match_outlives_the_store");
}

}  // namespace
}  // namespace headrace

#endif  // HEADRACE_TSAN
