// SPDX-License-Identifier: Apache-2.0
// A cache on the fake backend, for tests: sources on the hbm node of the small machine, copies in
// real memory of node 0. Nothing completes unless settle() or the test polls.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "headrace/cache.h"
#include "headrace/mover.h"
#include "tests/support/bytes.h"
#include "tests/support/fake_backend.h"
#include "tests/support/machines.h"

namespace headrace::test {

// Memory that claims to be on the hbm node; byte i is i * 7 + 1 until the test writes it.
class Source {
 public:
  explicit Source(std::uint64_t size, NodeId node = kHbm) : bytes_(size), object_(bytes_, node) {
    // They recur each 256 bytes.
    for (std::uint64_t i = 0; i < std::min<std::uint64_t>(size, 256); ++i) {
      bytes_[i] = static_cast<std::byte>(i * 7 + 1);
    }
    for (std::uint64_t i = 256; i < size; i *= 2) {
      std::copy_n(bytes_.data(), std::min(i, size - i), bytes_.data() + i);
    }
  }
  Extent at(std::uint64_t offset, std::uint64_t length) const {
    return {&object_, offset, Bytes{length}};
  }
  std::vector<std::byte>& bytes() { return bytes_; }
  const Object& object() const { return object_; }
  // Whether these are its bytes now.
  bool equals(const Extent& extent, std::span<const std::byte> bytes) const {
    return same(bytes, {extent.memory(), extent.length.value});
  }
  bool holds(const std::byte* address) const {
    return address >= bytes_.data() && address < bytes_.data() + bytes_.size();
  }

 private:
  std::vector<std::byte> bytes_;
  MemoryRange object_;
};

// An object that no CPU can address, and no engine of the rig can read.
class Opaque final : public Object {
 public:
  explicit Opaque(Bytes size) : Object(size, kDisk, nullptr) {}
};

class CacheRig {
 public:
  struct Options {
    FakeOptions fake = {};
    CacheOptions cache = {};
    Bytes budget = 1_MiB;
    const Clock* clock = &system_clock();
    Waiting* waiting = &system_waiting();
    bool poller = false;
    // False: no events, and hits take no lock.
    bool observe = true;
  };

  CacheRig() : CacheRig(Options{}) {}
  explicit CacheRig(Options options)
      : machine(options.cache.chain.empty() ? small_machine() : small_machine_with_far_node()) {
    options.fake.engines = {kCpuA, kCpuB};
    auto backend = std::make_unique<FakeBackend>(options.fake);
    fake = backend.get();
    backends.add(std::move(backend));
    mover = std::make_unique<Mover>(machine, backends,
                                    MoverOptions{.route = place::one,
                                                 .clock = options.clock,
                                                 .waiting = options.waiting,
                                                 .poller = options.poller});
    options.cache.budgets = {{kDram, options.budget}};
    options.cache.placement = place::always(kDram);
    options.cache.pages = PageSize::base;
    if (options.observe) {
      options.cache.observer = [this](const CacheEvent& event) {
        if (record) events.push_back(event);
      };
    }
    auto made = Cache::create(*mover, std::move(options.cache));
    EXPECT_TRUE(made.has_value()) << (made ? "" : made.error().message);
    if (made) cache = std::move(*made);
  }
  ~CacheRig() {
    fake->hold(false);
    cache.reset();
    EXPECT_EQ(fake->violations(), std::vector<std::string>{});
  }

  // Completes all copies.
  void settle() {
    for (int i = 0; i < 100000; ++i) {
      mover->poll();
      const MoverStats stats = mover->stats();
      if (stats.in_flight_pieces == 0 && stats.queued_pieces == 0) return;
    }
    FAIL() << "copies do not end";
  }
  // Accesses, waits and releases; the block is then cached, if it fits.
  void load(const Extent& extent) {
    const Block block = cache->access(extent);
    settle();
    EXPECT_TRUE(block.wait().has_value());
  }
  std::string event_names() const {
    std::string names;
    for (const CacheEvent& event : events) {
      if (!names.empty()) names += ' ';
      names += to_string(event.kind);
    }
    return names;
  }

  Machine machine;
  FakeBackend* fake = nullptr;
  Backends backends;
  std::unique_ptr<Mover> mover;
  bool record = true;  // single-thread tests only
  std::vector<CacheEvent> events;
  std::unique_ptr<Cache> cache;
};

}  // namespace headrace::test
