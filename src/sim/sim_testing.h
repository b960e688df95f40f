// SPDX-License-Identifier: Apache-2.0
// A small machine in virtual time, for tests.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "core/thread.h"
#include "headrace/cache.h"
#include "headrace/mover.h"
#include "sim/backend.h"
#include "sim/host.h"

namespace headrace::sim {

inline std::thread start(std::function<void()> body) {
  auto thread = start_thread("test", std::move(body));
  EXPECT_TRUE(thread.has_value());
  return *std::move(thread);
}

inline constexpr NodeId kSlow{0};
inline constexpr NodeId kFast{1};
inline constexpr EngineId kCores{0};
inline constexpr EngineId kDsa{1};

// 8 CPUs with DDR of 20 GB/s, HBM of 100 GB/s, and a DSA device of 10 GB/s.
inline Machine test_machine() {
  Machine machine;
  machine.name = "test";
  machine.nodes = {{.id = kSlow, .kind = NodeKind::dram, .name = "node 0", .capacity = 8_GiB},
                   {.id = kFast, .kind = NodeKind::hbm, .name = "node 1", .capacity = 1_GiB}};
  machine.nodes[0].cpus = {0, 1, 2, 3, 4, 5, 6, 7};
  const auto access = [](double rate) {
    return AccessAttributes{.initiator = kSlow,
                            .read_latency = Nanoseconds{100},
                            .write_latency = Nanoseconds{100},
                            .read_bandwidth = BytesPerSecond{rate},
                            .write_bandwidth = BytesPerSecond{rate},
                            .source = "test",
                            .measured = true};
  };
  machine.nodes[0].access = {access(20e9)};
  machine.nodes[1].access = {access(100e9)};
  machine.engines = {{.id = kCores, .kind = EngineKind::cpu, .name = "cpu0", .home = kSlow},
                     {.id = kDsa, .kind = EngineKind::dsa, .name = "dsa0", .home = kSlow}};
  machine.copy_rates = {{.engine = kDsa,
                         .from = kSlow,
                         .to = kFast,
                         .latency = std::chrono::microseconds{1},
                         .bandwidth = BytesPerSecond{10e9},
                         .source = "test"}};
  return machine;
}

// A cache on a host, whose DSA device copies from `source`, in virtual time.
struct CacheOnHost {
  CacheOnHost(Host& host, CacheOptions options, NodeId from, Bytes bytes)
      : backends(*open_kinds(host, std::array{EngineKind::dsa})),
        mover(host.machine(), backends,
              {.route = place::one, .clock = &host.turns(), .waiting = &host.turns()}),
        source(*host.reserve(from, bytes)) {
    options.placement = place::always(options.budgets[0].first);
    options.shards = 1;
    options.allocate = [&host](NodeId node, Bytes slab) { return host.reserve_object(node, slab); };
    cache = *Cache::create(mover, std::move(options));
  }

  Backends backends;
  Mover mover;
  const std::shared_ptr<ReservedMemory> source;
  std::unique_ptr<Cache> cache;
};

inline void test_on_host(const std::function<void(Host&)>& body,
                         const Machine& machine = test_machine()) {
  const Status ended = run({}, [&](Scheduler& turns) {
    const auto host = Host::create(turns, machine);
    ASSERT_TRUE(host.has_value()) << host.error().message;
    body(**host);
  });
  EXPECT_TRUE(ended.has_value()) << (ended ? "" : ended.error().message);
}

}  // namespace headrace::sim
