// SPDX-License-Identifier: Apache-2.0
#include "sim/flows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/thread.h"
#include "headrace/random.h"
#include "sim/sim_testing.h"

namespace headrace::sim {
namespace {

using namespace std::chrono_literals;

constexpr double kMany = 1e9;  // bytes in flight that no ceiling lets through

// One memory of 10 GB/s, exactly: its queue grows without end at full load.
Solver ten_gb() {
  Ceiling memory{.name = "memory",
                 .paths = {{.to = {kSlow}}},
                 .bandwidth = Curve{{{0, 10e9}}},
                 // Full load from the first ns of queue on.
                 .queue = Curve{{{0, 0}, {1, 1e-3}}}};
  auto solver = Solver::create(test_machine(), MachineModel{.ceilings = {std::move(memory)}});
  EXPECT_TRUE(solver.has_value()) << (solver ? "" : solver.error().message);
  return *std::move(solver);
}

Flow reader(double in_flight_bytes, std::optional<double> cap = {}) {
  return {.name = "reader",
          .initiator = NodeId{0},
          .accesses = {{.node = NodeId{0}, .latency_ns = 100}},
          .in_flight_bytes = in_flight_bytes,
          .cap_bytes_per_second = cap};
}

void in_virtual_time(const std::function<void(Scheduler&)>& body) {
  const Status ended = run({}, body);
  EXPECT_TRUE(ended.has_value()) << (ended ? "" : ended.error().message);
}

TEST(Flows, OneFlow_TakesItsBytesDividedByItsRate) {
  in_virtual_time([](Scheduler& turns) {
    const Solver solver = ten_gb();
    Flows flows(turns, solver);
    const auto own = flows.add_class(reader(100));  // 100 bytes in 100 ns: 1 GB/s
    ASSERT_TRUE(own.has_value());
    flows.run(*own, Bytes{1'000'000});
    EXPECT_NEAR(seconds(turns.now()), 1e-3, 1e-5);
    flows.run(*own, 0_B);
    EXPECT_NEAR(seconds(turns.now()), 1e-3, 1e-5);
  });
}

TEST(Flows, EqualFlows_ShareTheCeilingAndEndInTheOrderOfTheirBytes) {
  in_virtual_time([](Scheduler& turns) {
    const Solver solver = ten_gb();
    Flows flows(turns, solver);
    const std::size_t own = *flows.add_class(reader(kMany));
    std::vector<std::pair<int, double>> ends;
    std::vector<std::thread> threads;
    for (const int share : {3, 1, 2}) {
      threads.push_back(start([&, share] {
        flows.run(own, Bytes{static_cast<std::uint64_t>(share) * 10'000'000});
        ends.emplace_back(share, seconds(turns.now()));
      }));
    }
    for (std::thread& thread : threads) join(thread);
    // All three until 30 MB are done, two until 50 MB, one until 60 MB.
    ASSERT_EQ(ends.size(), 3U);
    EXPECT_EQ(ends[0].first, 1);
    EXPECT_NEAR(ends[0].second, 3e-3, 0.2e-3);
    EXPECT_EQ(ends[1].first, 2);
    EXPECT_NEAR(ends[1].second, 5e-3, 0.3e-3);
    EXPECT_EQ(ends[2].first, 3);
    EXPECT_NEAR(ends[2].second, 6e-3, 0.4e-3);
  });
}

// Random flows of several classes against a simulation in small steps of time.
TEST(Flows, RandomFlows_EndWhenSmallStepsSaySo) {
  in_virtual_time([](Scheduler& turns) {
    const Solver solver = ten_gb();
    Flows flows(turns, solver);
    const std::vector<Flow> kinds = {reader(100), reader(1000, 2e9), reader(kMany)};
    std::vector<std::size_t> numbers;
    for (const Flow& kind : kinds) numbers.push_back(*flows.add_class(kind));
    struct One {
      std::size_t kind;
      double begin, bytes, end = 0, left = 0;
    };
    std::vector<One> all;
    Random random(7);
    for (int i = 0; i < 40; ++i) {
      all.push_back({.kind = random.below(kinds.size()),
                     .begin = static_cast<double>(random.below(2'000)) * 1e-6,
                     .bytes = static_cast<double>(10'000 + random.below(1'000'000))});
    }
    std::vector<std::thread> threads;
    for (One& one : all) {
      threads.push_back(start([&] {
        turns.sleep(Nanoseconds{static_cast<std::int64_t>(one.begin * 1e9)});
        flows.run(numbers[one.kind], Bytes{static_cast<std::uint64_t>(one.bytes)});
        one.end = seconds(turns.now());
      }));
    }
    for (std::thread& thread : threads) join(thread);
    std::vector<double> expected(all.size(), -1);
    constexpr double kStep = 1e-7;
    for (One& one : all) one.left = one.bytes;
    for (double time = 0; std::ranges::count(expected, -1.0) > 0; time += kStep) {
      std::vector<Flow> now;
      std::vector<std::size_t> kind_of(kinds.size(), kinds.size());
      for (std::size_t k = 0; k < kinds.size(); ++k) {
        const auto members = std::ranges::count_if(all, [&](const One& one) {
          return one.kind == k && one.begin <= time + kStep / 2 && one.left > 0;
        });
        if (members == 0) continue;
        kind_of[k] = now.size();
        now.push_back(kinds[k]);
        now.back().threads = static_cast<double>(members);
      }
      if (now.empty()) continue;
      const auto solution = solver.solve(now);
      ASSERT_TRUE(solution.has_value());
      for (std::size_t i = 0; i < all.size(); ++i) {
        One& one = all[i];
        if (one.begin > time + kStep / 2 || one.left <= 0) continue;
        const std::size_t at = kind_of[one.kind];
        one.left -= solution->flows[at].rate / now[at].threads * kStep;
        if (one.left <= 0) expected[i] = time + kStep;
      }
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
      EXPECT_NEAR(all[i].end, expected[i], 10e-6) << i;
    }
  });
}

TEST(Flows, SharedClass_IsAsFastAsOneThread) {
  in_virtual_time([](Scheduler& turns) {
    const Solver solver = ten_gb();
    Flows flows(turns, solver);
    const std::size_t engine = *flows.add_class(reader(100), true);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.push_back(start([&] { flows.run(engine, Bytes{250'000}); }));
    }
    for (std::thread& thread : threads) join(thread);
    EXPECT_NEAR(seconds(turns.now()), 1e-3, 1e-5);
  });
}

TEST(Flows, Use_NamesTheCeilingAndTheBytes) {
  in_virtual_time([](Scheduler& turns) {
    const Solver solver = ten_gb();
    Flows flows(turns, solver);
    const std::size_t slow = *flows.add_class(reader(100));
    const std::size_t fast = *flows.add_class(reader(kMany));
    flows.run(slow, Bytes{1'000'000});
    flows.run(fast, Bytes{50'000'000});
    const auto use = flows.flow_use();
    ASSERT_EQ(use.size(), 2U);
    EXPECT_EQ(use[0].bytes, 1e6);
    ASSERT_EQ(use[0].limited.size(), 1U);
    EXPECT_EQ(use[0].limited[0].by, "core: lines in flight");
    EXPECT_NEAR(use[0].limited[0].seconds, 1e-3, 1e-5);
    ASSERT_EQ(use[1].limited.size(), 1U);
    EXPECT_EQ(use[1].limited[0].by, "memory");
    EXPECT_NEAR(use[1].limited[0].seconds, 5e-3, 0.3e-3);
    const auto ceilings = flows.ceiling_use();
    ASSERT_EQ(ceilings.size(), 1U);
    EXPECT_NEAR(ceilings[0].bytes, 51e6, 1e3);
    EXPECT_NEAR(ceilings[0].full, use[1].limited[0].seconds, 1e-6);
    EXPECT_NEAR(ceilings[0].seconds, seconds(turns.now()), 1e-6);
  });
}

TEST(Flows, InvalidFlow_IsRefused) {
  in_virtual_time([](Scheduler& turns) {
    const Solver solver = ten_gb();
    Flows flows(turns, solver);
    Flow nowhere = reader(100);
    nowhere.accesses[0].node = NodeId{47};
    const auto refused = flows.add_class(nowhere);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, ErrorCode::invalid);
  });
}

}  // namespace
}  // namespace headrace::sim
