// SPDX-License-Identifier: Apache-2.0
// Random operations with failures, compared with the promises of a store. It never returns bytes of
// another key, finds a block that was never stored, loses a matched block, exceeds a budget, or
// miscounts.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstring>
#include <set>

#include "kvcache/kvcache_testing.h"

namespace headrace {
namespace {

using namespace test;

constexpr std::size_t kKeys = 24;

FakeOptions any_fake(bool failing) {
  FakeOptions fake;
  fake.seed = *rc::gen::inRange<std::uint64_t>(1, 1000);
  fake.max_in_flight = *rc::gen::inRange<std::size_t>(1, 6);
  fake.polls = *rc::gen::inRange(0U, 4U);
  fake.reorder = *rc::gen::arbitrary<bool>();
  fake.inside_chance = *rc::gen::element(0.0, 0.3);
  fake.partial_chance = *rc::gen::element(0.0, 0.3);
  fake.fail_chance = failing ? *rc::gen::element(0.0, 0.02, 0.3) : 0.0;
  return fake;
}

// Blocks of one size with layers, or of any size.
kvcache::Geometry any_geometry() {
  return *rc::gen::element(small_geometry(), small_geometry(), any_size_geometry(false),
                           any_size_geometry(true));
}

class KvModel {
 public:
  explicit KvModel(bool failing)
      : failing_(failing),
        rig_(any_fake(failing), false, any_geometry()),
        keys_(kvcache::keys(rig_.geometry, tokens(4 * kKeys))),
        memory_{*rc::gen::inRange<std::size_t>(1, 8)},
        folder_(*rc::gen::inRange<std::size_t>(0, 30)),
        second_(folder_ < 2 ? 0 : *rc::gen::inRange<std::size_t>(0, folder_ / 2 + 1)) {
    for (int more = *rc::gen::inRange(0, 3); more > 0; --more) {
      memory_.push_back(*rc::gen::inRange<std::size_t>(1, 8));
    }
    if (folder_ > 0 && *rc::gen::inRange(0, 4) == 0) memory_.clear();
    open();
  }

  void step() {
    switch (*rc::gen::weightedElement<int>({{6, 0},
                                            {6, 1},
                                            {3, 2},
                                            {3, 3},
                                            {2, 4},
                                            {1, 5},
                                            {1, 6},
                                            {1, 7},
                                            {4, 8},
                                            {4, 9},
                                            {2, 10}})) {
      case 0: store(); break;
      case 1: load(some_keys()); break;
      case 9: load(last_); break;  // used again, so it may be promoted or follow a reader
      case 10: hold_files(); break;
      case 2: hold(); break;
      case 3: let_go(); break;
      case 4: end_a_load(); break;
      case 5: cancel(); break;
      case 6: reopen(); break;
      case 7: disturb(); break;
      default: rig_.store->poll();
    }
    check();
  }

  void finish() {
    release_files();
    while (!loads_.empty()) end_a_load();
    held_.clear();
    rig_.settle();
    const kvcache::StoreStats stats = rig_.store->stats();
    RC_ASSERT(stats.pinned == 0_B);
    RC_ASSERT(stats.in_flight == 0_B);
    if (!failing_) RC_ASSERT(stats.damaged == 0u);
    if (!failing_) RC_ASSERT(stats.failed == 0u);
    rig_.files->fail_chance = 0;
    std::set<kvcache::Key> there;
    for (const kvcache::Key& key : keys_) {
      const kvcache::Match match = rig_.store->match({&key, 1});
      if (match.size() == 0) continue;
      RC_ASSERT(stored_.contains(key));
      there.insert(key);
    }
    std::uint64_t copies = 0;
    for (const kvcache::TierStats& tier : rig_.store->stats().tiers) copies += tier.blocks;
    RC_ASSERT(there.size() <= copies);
    RC_ASSERT(copies == 0 || !there.empty());
    for (const kvcache::Key& key : there) load_alone(key);
    RC_ASSERT(rig_.fake->violations().empty());
  }

 private:
  // All blocks that are there can be loaded, unless their copies fail, and are correct.
  void load_alone(const kvcache::Key& key) {
    std::vector<std::byte> bytes(rig_.size_of(key).value);
    const MemoryRange memory(bytes, kDram);
    const auto load = rig_.store->load({&key, 1}, whole(memory), {.promote = false});
    RC_ASSERT(load.has_value());
    const Status outcome = load->wait();
    if (!failing_) RC_ASSERT(outcome.has_value());
    if (outcome) {
      RC_ASSERT(bytes == rig_.blocks_of({&key, 1}));
    } else {
      RC_ASSERT(outcome.error().code == ErrorCode::io);
    }
  }

  struct Running {
    std::vector<kvcache::Key> keys;
    std::vector<std::byte> bytes;
    std::unique_ptr<MemoryRange> memory;
    kvcache::Load load;
    bool cancelled = false;
    bool skips = false;
  };

  // A larger folder may be two.
  kvcache::StoreOptions options_of() const {
    auto options = rig_.options(memory_, folder_);
    if (second_ > 0) {
      kvcache::TierOptions& tier = options.tiers.back();
      tier.budget = rig_.slot * (folder_ - second_);
      tier.more_folders = {{tier.folder / "second", rig_.slot * second_}};
      tier.folder /= "first";
    }
    return options;
  }
  void open() {
    auto options = options_of();
    options.in_flight = rig_.geometry.block() * *rc::gen::inRange<std::uint64_t>(1, 12);
    options.eviction = *eviction_order(*rc::gen::element("s3-fifo", "sieve", "clock"));
    const auto write = *rc::gen::element(kvcache::WriteBack::leaving, kvcache::WriteBack::idle,
                                         kvcache::WriteBack::stored);
    writes_at_once_ = write == kvcache::WriteBack::stored;
    options.tiers.back().write = write;
    options.tiers.back().verify = *rc::gen::element(kvcache::Verify::all, kvcache::Verify::found);
    auto made = kvcache::Store::open(*rig_.mover, std::move(options));
    for (int i = 0; !made && i < 200; ++i) {  // fails if the headers could not be read
      made = kvcache::Store::open(*rig_.mover, options_of());
    }
    RC_ASSERT(made.has_value());
    rig_.store = std::move(*made);
  }
  std::vector<kvcache::Key> some_keys() {
    const auto first = *rc::gen::inRange<std::size_t>(0, kKeys);
    const auto count = *rc::gen::inRange<std::size_t>(1, 6);
    const auto all = std::span(keys_).subspan(first, std::min(count, kKeys - first));
    return {all.begin(), all.end()};
  }
  void store() {
    release_files();  // the store is waited for, perhaps until other blocks are in the folder
    const auto keys = some_keys();
    const auto counts = rig_.put(keys);
    RC_ASSERT(counts.has_value());
    RC_ASSERT(counts->stored + counts->present + counts->refused + counts->failed == keys.size());
    if (!failing_) RC_ASSERT(counts->failed == 0u);
    // If some were not stored, the result does not say which; those not written may be in memory.
    if (counts->stored + counts->present > 0) {
      stored_.insert(keys.begin(), keys.end());
    } else if (writes_at_once_) {
      for (const kvcache::Key& key : keys) {
        if (rig_.store->contains({&key, 1})[0]) stored_.insert(key);
      }
    }
    const bool written = writes_at_once_ || memory_.empty();
    if (written && counts->stored + counts->present == keys.size()) {
      written_.insert(keys.begin(), keys.end());
    }
  }
  void load(const std::vector<kvcache::Key>& keys) {
    last_ = keys;
    const bool skips = *rc::gen::arbitrary<bool>();
    const kvcache::Match match = skips ? kvcache::Match() : rig_.store->match(keys);
    auto& run = loads_.emplace_back(std::make_unique<Running>());
    run->skips = skips;
    run->keys.assign(match.keys().begin(), match.keys().end());
    if (skips) run->keys = keys;
    run->bytes.resize(rig_.blocks_of(run->keys).size());
    run->memory = std::make_unique<MemoryRange>(run->bytes, kDram);
    auto load = rig_.store->load(
        run->keys, rig_.extents(*run->memory, run->keys),
        {.layer_order = *rc::gen::arbitrary<bool>(),
         .priority = *rc::gen::element(Priority::demand, Priority::demand, Priority::prefetch),
         .skip_missing = skips,
         .promote = *rc::gen::arbitrary<bool>()});
    RC_ASSERT(load.has_value());
    run->load = *load;
  }
  // Holds reads and writes, so that loads overlap.
  void hold_files() { held_files_ = rig_.files->held = true; }
  void release_files() {
    if (std::exchange(held_files_, false)) rig_.files->release();
  }
  void end_a_load() {
    if (loads_.empty()) return;
    release_files();
    const auto index = *rc::gen::inRange<std::size_t>(0, loads_.size());
    const auto run = std::move(loads_[index]);
    loads_.erase(loads_.begin() + static_cast<std::ptrdiff_t>(index));
    const Status outcome = run->load.wait();
    if (!failing_ && !run->cancelled) RC_ASSERT(outcome.has_value());
    const std::size_t leading = run->load.leading();
    if (!run->skips) RC_ASSERT(outcome.has_value() == (leading == run->keys.size()));
    const auto right = rig_.blocks_of(run->keys);
    std::ptrdiff_t at = 0;
    std::ptrdiff_t block = 0;
    for (std::size_t i = 0; i < run->keys.size(); ++i) {
      at += block;
      block = static_cast<std::ptrdiff_t>(rig_.size_of(run->keys[i]).value);
      if (i < leading) RC_ASSERT(run->load.loaded(i));
      if (i == leading) RC_ASSERT(!run->load.loaded(i));
      if (!run->load.loaded(i)) continue;
      RC_ASSERT(stored_.contains(run->keys[i]));
      RC_ASSERT(std::memcmp(&right[0] + at, &run->bytes[0] + at, static_cast<std::size_t>(block)) ==
                0);
    }
  }
  void cancel() {
    if (loads_.empty()) return;
    const auto index = *rc::gen::inRange<std::size_t>(0, loads_.size());
    loads_[index]->cancelled = true;
    loads_[index]->load.cancel();
  }
  void hold() {
    if (held_.size() == 4) return;
    const auto keys = some_keys();
    held_.push_back(*rc::gen::arbitrary<bool>() ? rig_.store->match(keys) : rig_.store->pin(keys));
    rig_.store->touch(some_keys());
  }
  void let_go() {
    if (!held_.empty()) held_.pop_back();
  }
  void reopen() {
    release_files();
    while (!loads_.empty()) end_a_load();
    held_.clear();
    if (*rc::gen::arbitrary<bool>()) (void)rig_.store->flush();
    rig_.store.reset();
    open();
    // Otherwise no block leaves the folder.
    if (failing_ || folder_ < kKeys || rig_.geometry.any_size) return;
    for (const kvcache::Key& key : written_) RC_ASSERT(rig_.store->contains({&key, 1})[0]);
  }
  void disturb() {
    if (failing_) rig_.files->fail_chance = *rc::gen::element(0.0, 0.05, 0.5);
  }
  void check() {
    const kvcache::StoreStats stats = rig_.store->stats();
    for (const kvcache::TierStats& tier : stats.tiers) RC_ASSERT(tier.used <= tier.budget);
    if (failing_) return;
    for (const kvcache::Match& match : held_) {
      RC_ASSERT(rig_.store->match(match.keys()).size() == match.size());
    }
  }

  const bool failing_;
  KvRig rig_;
  const std::vector<kvcache::Key> keys_;
  std::vector<std::size_t> memory_;
  const std::size_t folder_;
  const std::size_t second_;  // blocks of it in a second folder
  std::set<kvcache::Key> stored_;
  std::set<kvcache::Key> written_;  // stores that end with the write returned that they are there
  std::vector<kvcache::Key> last_;
  std::vector<kvcache::Match> held_;
  std::vector<std::unique_ptr<Running>> loads_;
  bool held_files_ = false;
  bool writes_at_once_ = false;
};

RC_GTEST_PROP(KvModel, KeepsWhatItPromises, ()) {
  KvModel model(false);
  const int steps = *rc::gen::inRange(1, 25);
  for (int i = 0; i < steps; ++i) model.step();
  model.finish();
}

RC_GTEST_PROP(KvModel, KeepsItWhenCopiesFail, ()) {
  KvModel model(true);
  const int steps = *rc::gen::inRange(1, 25);
  for (int i = 0; i < steps; ++i) model.step();
  model.finish();
}

}  // namespace
}  // namespace headrace
