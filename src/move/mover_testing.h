// SPDX-License-Identifier: Apache-2.0
// Shared by the tests of the Mover: a small machine whose memory engines are fakes, and two arrays
// of bytes.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "headrace/clock.h"
#include "headrace/mover.h"
#include "tests/support/bytes.h"
#include "tests/support/fake_backend.h"
#include "tests/support/machines.h"
#include "tests/support/manual_waiting.h"

namespace headrace::test {

inline RoutePolicy by_engine(EngineId engine) {
  return [engine](const Machine&, const RouteRequest& request) -> Result<Route> {
    return Route{.parts = {{0, request.bytes, engine}}, .reason = "test"};
  };
}

// Both memory engines driven by one fake; everything happens in poll(), by one thread.
struct Rig {
  static constexpr std::size_t kBytes = 1 << 20;

  explicit Rig(FakeOptions fake_options = {}, MoverOptions options = {}) {
    fake_options.engines = {kCpuA, kCpuB};
    fake_options.clock = &clock;
    if (!options.poller) {
      options.clock = &clock;
      options.waiting = &waiting;
    }
    auto made = std::make_unique<FakeBackend>(std::move(fake_options));
    fake = made.get();
    backends.add(std::move(made));
    mover.emplace(machine, backends, std::move(options));
  }

  Extent source(std::uint64_t offset, std::uint64_t length) const {
    return {&from, offset, Bytes{length}};
  }
  Extent target(std::uint64_t offset, std::uint64_t length) const {
    return {&to, offset, Bytes{length}};
  }
  Transfer copy(std::uint64_t offset, std::uint64_t length, MoveOptions options = {}) {
    return mover->copy(target(offset, length), source(offset, length), options);
  }
  bool copied(std::uint64_t offset, std::uint64_t length) const {
    return same(std::span(a).subspan(offset, length), std::span(b).subspan(offset, length));
  }

  const Machine machine = small_machine();
  ManualClock clock;
  ManualWaiting waiting{clock};
  std::vector<std::byte> a = random_bytes(kBytes, 1);
  std::vector<std::byte> b = std::vector<std::byte>(kBytes);
  MemoryRange from{a, kDram};
  MemoryRange to{b, kHbm};
  FakeBackend* fake = nullptr;
  Backends backends;
  std::optional<Mover> mover;
};

// Without a poller: only the test polls.
inline MoverOptions by_hand(Bytes piece = 4_KiB, Bytes bound = 64_KiB) {
  return {.route = by_engine(kCpuA), .piece = piece, .in_flight_per_link = bound, .poller = false};
}

}  // namespace headrace::test
