// SPDX-License-Identifier: Apache-2.0
// Random operations. Whatever happens below it, the cache must never return bytes older than the
// last invalidate before the access, exceed its budget, evict a pinned block, use a frame twice, or
// count wrongly.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <atomic>
#include <barrier>
#include <cstring>
#include <map>
#include <thread>

#include "core/mutex.h"
#include "headrace/random.h"
#include "tests/support/cache_rig.h"
#include "tests/support/chain_rig.h"

namespace headrace {
namespace {

using namespace test;

constexpr std::uint64_t kSource = 40000;

// The fake's engines, at random: delays, partial acceptance, failures, reordering.
FakeOptions any_fake() {
  FakeOptions fake;
  fake.seed = *rc::gen::inRange<std::uint64_t>(1, 1000);
  fake.max_in_flight = *rc::gen::inRange<std::size_t>(1, 5);
  fake.polls = *rc::gen::inRange(0U, 4U);
  fake.reorder = *rc::gen::arbitrary<bool>();
  fake.inside_chance = *rc::gen::element(0.0, 0.2);
  fake.partial_chance = *rc::gen::element(0.0, 0.3);
  fake.fail_chance = *rc::gen::element(0.0, 0.2);
  return fake;
}

struct Held {
  Block block;
  // The bytes of the source at the time of the access. A write adds one to a byte, so a later read
  // returns this or more.
  std::vector<std::byte> at_access;
  std::vector<std::byte> copy;  // filled at the first read; it never changes
};

CacheRig::Options any_rig(Bytes budget, const std::vector<std::uint64_t>& further,
                          std::size_t shards, bool observed) {
  CacheRig::Options options;
  if (!further.empty()) options = chain_of(budget.value, further);
  options.fake = any_fake();
  options.cache.eviction = *eviction_order(*rc::gen::element("s3-fifo", "sieve", "clock"));
  options.cache.slab = *rc::gen::element(4096_B, 16384_B, 65536_B);
  options.cache.shards = shards;
  options.budget = budget;
  options.observe = observed;
  if (*rc::gen::arbitrary<bool>()) {
    options.cache.tenants = {{.name = "a", .least = 0.3}, {.name = "b", .most = 0.5}};
  }
  return options;
}

// Budgets of the further memories of a chain; usually none.
std::vector<std::uint64_t> any_chain() {
  std::vector<std::uint64_t> further;
  for (int i = *rc::gen::element(0, 0, 1, 2); i > 0; --i) {
    further.push_back(*rc::gen::inRange<std::uint64_t>(2000, 60000));
  }
  return further;
}

class Model {
 public:
  Model()
      : budget_(Bytes{*rc::gen::inRange<std::uint64_t>(2000, 60000)}),
        source_(kSource),
        rig_(any_rig(budget_, further_, shards_, observed_)) {
    for (const std::uint64_t more : further_) below_ += more;
    std::fill(source_.bytes().begin(), source_.bytes().end(), std::byte{0});
  }

  void step() {
    switch (*rc::gen::weightedElement<int>({{8, 0},
                                            {4, 1},
                                            {2, 2},
                                            {4, 3},
                                            {3, 4},
                                            {2, 5},
                                            {1, 6},
                                            {1, 7},
                                            {1, 8},
                                            {1, 9},
                                            {4, 10}})) {
      case 0: access(); break;
      case 1: drop(); break;
      case 2: clone(); break;
      case 3: wait(); break;
      case 4: write_and_invalidate(); break;
      case 5: prefetch(); break;
      case 6: cancel(); break;
      case 7: rig_.cache->flush(); break;
      case 8: clear(); break;
      case 9: resize(); break;
      default: rig_.mover->poll();
    }
    check();
  }

  void finish() {
    rig_.settle();
    for (const Held& held : held_) RC_ASSERT(held.block.state() != BlockState::filling);
    check();
    const CacheStats stats = rig_.cache->stats();
    const std::uint64_t pinned = stats.bytes_pinned.value;
    // Some of several shards may have less than their share, and others pins beyond it.
    const bool exact = shards_ == 1 && further_.empty();
    RC_ASSERT(stats.bytes_used.value <=
              (exact ? std::max(budget_.value, pinned) : budget_.value + below_ + pinned));
    RC_ASSERT(stats.first_uses >= stats.late);
    if (observed_) {
      RC_ASSERT(count(CacheEvent::Kind::fill_started) ==
                stats.misses - stats.refusals + stats.prefetched);
      RC_ASSERT(count(CacheEvent::Kind::failed) == stats.failures);
    }
    held_.clear();
    plans_.clear();
    rig_.cache->flush();
    rig_.settle();
    RC_ASSERT(rig_.cache->stats().bytes_used == 0_B);
    RC_ASSERT(rig_.cache->stats().bytes_pinned == 0_B);
    RC_ASSERT(rig_.cache->stats().blocks == 0u);
    RC_ASSERT(rig_.fake->violations().empty());
  }

 private:
  Extent any_extent() {
    // Usually blocks of a grid, so that operations meet; sometimes any extent.
    const bool grid = *rc::gen::inRange(0, 4) > 0;
    const auto length = grid ? 1000 * *rc::gen::inRange<std::uint64_t>(1, 5)
                             : *rc::gen::inRange<std::uint64_t>(1, 12000);
    const auto last = kSource - length;
    const auto offset = grid ? *rc::gen::inRange<std::uint64_t>(0, last / 1000 + 1) * 1000
                             : *rc::gen::inRange<std::uint64_t>(0, last + 1);
    return source_.at(offset, length);
  }
  std::vector<std::byte> now(const Extent& extent) const {
    return {extent.memory(), extent.memory() + extent.length.value};
  }
  std::size_t any_held() { return *rc::gen::inRange<std::size_t>(0, held_.size()); }
  std::size_t count(CacheEvent::Kind kind) const {
    return static_cast<std::size_t>(std::ranges::count(rig_.events, kind, &CacheEvent::kind));
  }

  void access() {
    const Extent extent = any_extent();
    const auto at = *rc::gen::inRange<std::size_t>(0, plans_.size() + 2);
    const Prefetch* plan = at < plans_.size() ? &plans_[at] : nullptr;
    held_.push_back(
        {rig_.cache->access(extent, {.plan = plan, .tenant = any_tenant()}), now(extent), {}});
    ++accesses_;
  }
  TenantId any_tenant() {
    const auto tenant = rig_.cache->tenant(*rc::gen::element("a", "b", "none"));
    return tenant ? *tenant : TenantId{};
  }
  void drop() {
    if (!held_.empty()) held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(any_held()));
  }
  void clone() {
    if (held_.empty()) return;
    const Held& from = held_[any_held()];
    Held copy{from.block.clone(), from.at_access, from.copy};
    held_.push_back(std::move(copy));
  }
  void wait() {
    if (held_.empty()) return;
    const auto bytes = held_[any_held()].block.wait();
    RC_ASSERT(bytes.has_value());
  }
  void write_and_invalidate() {
    const Extent extent = any_extent();
    for (std::uint64_t i = extent.offset; i < extent.end(); ++i) {
      source_.bytes()[i] = static_cast<std::byte>(std::to_integer<int>(source_.bytes()[i]) + 1);
    }
    rig_.cache->invalidate(extent);
    ++writes_;
  }
  void prefetch() {
    std::vector<Extent> extents;
    for (int i = *rc::gen::inRange(1, 12); i > 0; --i) extents.push_back(any_extent());
    plans_.push_back(rig_.cache->prefetch(
        extents,
        {.window = Bytes{*rc::gen::inRange<std::uint64_t>(1000, 40000)}, .tenant = any_tenant()}));
  }
  void cancel() {
    if (plans_.empty()) return;
    const auto i = *rc::gen::inRange<std::size_t>(0, plans_.size());
    if (*rc::gen::arbitrary<bool>())
      plans_[i].cancel();
    else
      plans_.erase(plans_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  void clear() {
    rig_.cache->clear();
    for (const Prefetch& plan : plans_) RC_ASSERT(plan.progress().cancelled);
  }
  void resize() {
    if (!further_.empty() && *rc::gen::arbitrary<bool>()) {
      const auto more = *rc::gen::inRange<std::uint64_t>(0, 60000);
      below_ += more - std::exchange(further_[0], more);
      RC_ASSERT(rig_.cache->resize(kHbm, Bytes{more}).has_value());
      return;
    }
    budget_ = Bytes{*rc::gen::inRange<std::uint64_t>(0, 60000)};
    RC_ASSERT(rig_.cache->resize(kDram, budget_).has_value());
  }

  void check() {
    for (Held& held : held_) check(held);
    check_frames();
    const CacheStats stats = rig_.cache->stats();
    RC_ASSERT(stats.hits + stats.inflight_hits + stats.misses == accesses_);
    if (observed_) RC_ASSERT(count(CacheEvent::Kind::hit) == stats.hits);
    RC_ASSERT(stats.blocks <= stats.misses + stats.prefetched);
    for (const Prefetch& plan : plans_) {
      const auto progress = plan.progress();
      RC_ASSERT(progress.used <= progress.started && progress.started <= progress.planned);
    }
    // Above the budget lie only blocks that were held or in flight when the budget shrank.
    if (shards_ == 1 && further_.empty() && stats.bytes_used > budget_) {
      RC_ASSERT(stats.bytes_used <= most_used_);
    }
    most_used_ = std::max(budget_, stats.bytes_used);
  }

  static bool copied(const Block& block) {
    return block.state() == BlockState::ready || block.state() == BlockState::evicting;
  }

  void check(Held& held) {
    const auto bytes = held.block.now();
    RC_ASSERT(bytes.has_value());
    RC_ASSERT(bytes->size() == held.at_access.size());
    const auto current = now(held.block.extent());
    bool in_time = true;
    for (std::size_t i = 0; i < bytes->size(); ++i) {
      in_time = in_time && (*bytes)[i] >= held.at_access[i] && (*bytes)[i] <= current[i];
    }
    RC_ASSERT(in_time);
    if (!copied(held.block)) return;
    RC_ASSERT(!source_.holds(bytes->data()));
    if (held.copy.empty()) held.copy.assign(bytes->begin(), bytes->end());
    RC_ASSERT(std::ranges::equal(*bytes, held.copy));
  }

  // Two held copies that share memory are parts of one block.
  void check_frames() {
    for (std::size_t i = 0; i < held_.size(); ++i) {
      for (std::size_t k = 0; k < i; ++k) {
        const Block& a = held_[i].block;
        const Block& b = held_[k].block;
        if (!copied(a) || !copied(b)) continue;
        const auto x = *a.now();
        const auto y = *b.now();
        if (x.data() + x.size() <= y.data() || y.data() + y.size() <= x.data()) continue;
        RC_ASSERT(x.data() - a.extent().offset == y.data() - b.extent().offset);
      }
    }
  }

  const bool observed_ = *rc::gen::arbitrary<bool>();
  Bytes budget_;
  std::vector<std::uint64_t> further_ = any_chain();
  std::uint64_t below_ = 0;  // their sum
  const std::size_t shards_ =
      budget_ < 16_KiB || !further_.empty() ? 1 : *rc::gen::element<std::size_t>(1, 2, 4);
  Source source_;
  CacheRig rig_;
  std::vector<Held> held_;
  std::vector<Prefetch> plans_;
  std::uint64_t accesses_ = 0;
  int writes_ = 0;
  Bytes most_used_{60000};

 public:
  // A byte counts 255 writes.
  bool full() const { return writes_ >= 255; }
};

RC_GTEST_PROP(CacheModelTest, RandomOperationsKeepThePromises, ()) {
  Model model;
  for (int step = *rc::gen::inRange(1, 80); step > 0 && !model.full(); --step) model.step();
  model.finish();
}

// Many threads at once, with copies that end in a thread of their own: for ThreadSanitizer, and for
// the order between a writer's invalidate() and other threads' reads.

constexpr std::uint64_t kSlot = 512;
constexpr std::size_t kSlots = 24;

std::uint64_t version_of(std::span<const std::byte> bytes, bool& torn) {
  std::uint64_t first = 0;
  std::memcpy(&first, bytes.data(), sizeof first);
  for (std::size_t i = 0; i < bytes.size(); i += sizeof first) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, sizeof word);
    torn = torn || word != first;
  }
  return first;
}

FakeOptions unreliable() {
  FakeOptions fake;
  fake.own_thread = true;
  fake.inside_chance = 0.1;
  fake.fail_chance = 0.02;
  fake.partial_chance = 0.1;
  fake.reorder = true;
  fake.log = false;
  return fake;
}

// With several shards some blocks lie in two stretches.
void read_and_invalidate(std::size_t shards, bool chain = false) {
  const std::size_t slots = kSlots * shards;
  Source source(kSlot * slots);
  auto options = chain_of(8192 * shards, {4096, 4096});
  if (!chain) options.cache.chain.clear();
  options.fake = unreliable();
  options.cache.shards = shards;
  CacheRig rig(options);
  std::atomic<std::uint64_t> accesses{0};
  Mutex exchange_mutex;
  std::vector<Block> exchanged(4);
  const auto reader = [&](std::uint64_t seed) {
    Random random(seed);
    std::vector<Block> held(3);
    for (int i = 0; i < 1500; ++i) {
      const std::uint64_t length = shards > 1 && random.chance(0.1) ? 3 : 1;
      const std::uint64_t slot = random.below(slots - length + 1);
      const Extent extent = source.at(slot * kSlot, length * kSlot);
      Block& block = held[random.below(held.size())];
      block = rig.cache->access(extent);
      ++accesses;
      if (random.chance(0.2)) {
        const MutexLock lock(exchange_mutex);
        std::swap(exchanged[random.below(exchanged.size())], block);  // released by another thread
        block = rig.cache->access(extent);
        ++accesses;
      }
      if (random.chance(0.5)) {
        const auto bytes = block.wait();
        ASSERT_TRUE(bytes && source.equals(extent, *bytes));
      }
      if (random.chance(0.1)) held[0] = held[1].clone();
      if (random.chance(0.05)) rig.cache->invalidate(extent);
      if (random.chance(0.01)) rig.cache->flush();
      if (random.chance(0.003)) rig.cache->clear();
      if (random.chance(0.01)) {
        ASSERT_TRUE(
            rig.cache->resize(kDram, Bytes{(4096 + random.below(8192)) * shards}).has_value());
      }
    }
  };
  const auto planner = [&](std::uint64_t seed) {
    Random random(seed);
    for (int i = 0; i < 100; ++i) {
      std::vector<Extent> plan;
      for (int k = 0; k < 10; ++k) plan.push_back(source.at(random.below(slots) * kSlot, kSlot));
      Prefetch prefetch = rig.cache->prefetch(plan, {.window = 2048_B});
      for (const Extent& extent : plan) {
        const Block block = rig.cache->access(extent);
        ++accesses;
        if (random.chance(0.3)) {
          ASSERT_TRUE(block.wait().has_value());
        }
      }
      (void)prefetch.progress();
      if (random.chance(0.5)) prefetch.cancel();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (std::uint64_t i = 0; i < 3; ++i) threads.emplace_back(reader, i + 1);
    for (std::uint64_t i = 0; i < 2; ++i) threads.emplace_back(planner, i + 10);
  }
  exchanged.clear();
  const CacheStats stats = rig.cache->stats();
  EXPECT_EQ(stats.hits + stats.inflight_hits + stats.misses, accesses.load());
  EXPECT_EQ(stats.bytes_pinned, 0_B);
}

TEST(CacheStressTest, ReadersAndInvalidationsOnTinyBudgets) { read_and_invalidate(1); }

TEST(CacheStressTest, ReadersAndInvalidationsInShards) { read_and_invalidate(4); }

TEST(CacheStressTest, ReadersAndInvalidationsInAChain) { read_and_invalidate(1, true); }

// The whole budget is one slab, which the first miss allocates. Other misses meanwhile wait for it.
TEST(CacheStressTest, WhileASlabIsAllocated_NoAccessIsRefused) {
  constexpr std::size_t kThreads = 8;
  for (int round = 0; round < 5; ++round) {
    FakeOptions fake;
    fake.own_thread = true;
    fake.log = false;
    Source source(kSlot * 4 * kThreads);
    CacheRig rig({.fake = fake, .cache = {.slab = 32_MiB}, .budget = 32_MiB, .observe = false});
    std::barrier ready(kThreads);
    std::vector<Prefetch> plans(kThreads);
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        ready.arrive_and_wait();
        const Extent mine = source.at((kThreads + i) * kSlot, kSlot);
        if (i % 2 == 1) plans[i] = rig.cache->prefetch(std::vector{source.at(i * kSlot, kSlot)});
        const Block block = rig.cache->access(mine);
        const auto bytes = block.wait();
        ASSERT_TRUE(bytes && source.equals(mine, *bytes) && !source.holds(bytes->data()));
      });
    }
    threads.clear();
    for (std::size_t i = 0; i < kThreads; ++i) EXPECT_EQ(plans[i].progress().started, i % 2);
    EXPECT_EQ(rig.cache->stats().refusals, 0u);
  }
}

// Four frames, one of them held: each of three threads has a block and finds a frame for the next.
TEST(CacheStressTest, WhileAFrameIsFree_NoAccessIsRefused) {
  FakeOptions fake;
  fake.own_thread = true;
  fake.log = false;
  Source source(8 * kSlot);
  CacheRig rig(
      {.fake = fake, .cache = {.slab = 4096_B}, .budget = Bytes{4 * kSlot}, .observe = false});
  const Block held = rig.cache->access(source.at(0, kSlot));
  ASSERT_TRUE(held.wait().has_value());
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&] {
      for (std::uint64_t i = 0; i < 2000; ++i) {
        const Extent extent = source.at(i % 8 * kSlot, kSlot);
        const Block block = rig.cache->access(extent);
        const auto bytes = block.wait();
        ASSERT_TRUE(bytes && source.equals(extent, *bytes));
      }
    });
  }
  threads.clear();
  EXPECT_EQ(rig.cache->stats().refusals, 0u);
}

// Rows are cached, then written (while nothing copies them), then invalidated, then announced to
// the readers. A reader that knows of a row must see every word of the write.
TEST(CacheStressTest, NoReaderSeesAVersionOlderThanTheLastInvalidate) {
  FakeOptions fake;
  fake.own_thread = true;
  fake.log = false;
  constexpr std::uint64_t kRows = 200;
  Source rows(kSlot * kRows);
  CacheRig rig({.fake = fake, .cache = {.slab = 4096_B}, .budget = 8192_B, .observe = false});
  std::memset(rows.bytes().data(), 0, kSlot * kRows);
  std::atomic<std::uint64_t> written{0};
  std::jthread writer([&] {
    for (std::uint64_t row = 0; row < kRows; ++row) {
      // The row was cached before it is written, so those bytes are old afterwards.
      (void)rig.cache->access(rows.at(row * kSlot, kSlot)).wait();
      for (std::uint64_t i = 0; i < kSlot; i += 8) {
        const std::uint64_t version = row + 1;
        std::memcpy(rows.bytes().data() + row * kSlot + i, &version, 8);
      }
      rig.cache->invalidate(rows.at(row * kSlot, kSlot));
      written = row + 1;
    }
  });
  std::vector<std::jthread> readers;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    readers.emplace_back([&, seed] {
      Random random(seed);
      while (written.load() < kRows) {
        const std::uint64_t known = written.load();
        if (known == 0) continue;
        const std::uint64_t row = known - 1 - random.below(std::min<std::uint64_t>(known, 4));
        const Block block = rig.cache->access(rows.at(row * kSlot, kSlot));
        const auto bytes = block.wait();
        ASSERT_TRUE(bytes.has_value());
        bool torn = false;
        ASSERT_EQ(version_of(*bytes, torn), row + 1);
        ASSERT_FALSE(torn);
      }
    });
  }
}

}  // namespace
}  // namespace headrace
