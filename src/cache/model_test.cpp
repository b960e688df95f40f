// SPDX-License-Identifier: Apache-2.0
// Random operations against what a cache must never do, whatever happens below it: show bytes older
// than the last invalidate before the access, take more than its budget, evict what is held, use a
// frame twice, or lose count.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>

#include "tests/support/cache_rig.h"

namespace headrace {
namespace {

using namespace test;

constexpr std::uint64_t kSource = 40000;

// The engines of the fake, at random: delays, partial acceptance, failures, reordering.
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
  // Each byte of the source at the time of the access: a write adds one to it, so what is seen
  // later is this or more.
  std::vector<std::byte> at_access;
  std::vector<std::byte> copy;  // once seen; it never changes
};

class Model {
 public:
  Model()
      : budget_(Bytes{*rc::gen::inRange<std::uint64_t>(2000, 60000)}),
        source_(kSource),
        rig_({.fake = any_fake(),
              .cache = {.eviction = *eviction_order(*rc::gen::element("s3-fifo", "sieve", "clock")),
                        .slab = *rc::gen::element(4096_B, 16384_B, 65536_B),
                        .shards = shards_},
              .budget = budget_,
              .observe = observed_}) {
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
    // With several shards some may have less than their share, and others pins beyond it.
    RC_ASSERT(stats.bytes_used.value <=
              (shards_ == 1 ? std::max(budget_.value, pinned) : budget_.value + pinned));
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
    // A grid of blocks mostly, so that things meet; anything at all sometimes.
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
    held_.push_back({rig_.cache->access(extent, {.plan = plan}), now(extent), {}});
    ++accesses_;
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
        extents, {.window = Bytes{*rc::gen::inRange<std::uint64_t>(1000, 40000)}}));
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
    // Beyond the budget lies only what was held or in flight when the budget shrank.
    if (shards_ == 1 && stats.bytes_used > budget_) RC_ASSERT(stats.bytes_used <= most_used_);
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

  // Where two held copies share memory they are parts of one block.
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
  const std::size_t shards_ = budget_ < 16_KiB ? 1 : *rc::gen::element<std::size_t>(1, 2, 4);
  Source source_;
  CacheRig rig_;
  std::vector<Held> held_;
  std::vector<Prefetch> plans_;
  std::uint64_t accesses_ = 0;
  int writes_ = 0;
  Bytes most_used_{60000};

 public:
  // A byte holds 255 writes.
  bool full() const { return writes_ >= 255; }
};

RC_GTEST_PROP(CacheModelTest, RandomOperationsKeepThePromises, ()) {
  Model model;
  for (int step = *rc::gen::inRange(1, 80); step > 0 && !model.full(); --step) model.step();
  model.finish();
}

}  // namespace
}  // namespace headrace
