// SPDX-License-Identifier: Apache-2.0
#include "tests/explore/explore.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "core/thread.h"
#include "tests/explore/report.h"

namespace headrace::explore {
namespace {

// Schedules of each scenario in `make test`: 5 000 in all.
constexpr std::uint64_t kSchedules = 185;

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoull(value, nullptr, 10);
}

std::string_view name_of(PolicyKind policy) { return policy == PolicyKind::pct ? "pct" : "random"; }

// One CPU serves all threads, since only one runs at a time: the turn passes in a tenth of the
// time.
class OneCpu {
 public:
  OneCpu() {
    sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<unsigned>(sched_getcpu()), &one);
    sched_setaffinity(0, sizeof one, &one);
  }
  ~OneCpu() { sched_setaffinity(0, sizeof before_, &before_); }
  OneCpu(const OneCpu&) = delete;
  OneCpu& operator=(const OneCpu&) = delete;

 private:
  cpu_set_t before_{};
};

}  // namespace

void Trial::together(std::initializer_list<std::function<void()>> bodies) {
  std::vector<std::thread> threads;
  schedule_.begin_together();
  for (const auto& body : bodies) {
    threads.emplace_back([this, &body] {
      current->awaited = !timeouts_;
      body();
      current->awaited = false;
    });
  }
  for (std::thread& thread : threads) thread.join();
  schedule_.end_together();
}

void Trial::require(bool holds, std::string_view promise, std::source_location where) {
  if (holds) return;
  schedule_.fail(fmt::format("{} ({}:{})", promise, where.file_name(), where.line()));
}

Exploration explore(const Scenario& scenario, double share) {
  const OneCpu one_cpu;
  const auto* const test = testing::UnitTest::GetInstance()->current_test_info();
  const std::string name = fmt::format("{}.{}", test->test_suite_name(), test->name());
  Exploration all;
  std::unordered_set<std::uint64_t> orders;
  std::uint64_t longest = 0;
  bool print_all = false;
  const auto once = [&](PolicyKind policy, std::uint64_t seed, std::uint64_t length) {
    Schedule schedule(
        {.policy = policy, .seed = seed, .length = length, .membarrier = seed % 8 != 7});
    set_replay(fmt::format(
        "HEADRACE_EXPLORE_POLICY={} HEADRACE_EXPLORE_SEED={} {} "
        "--gtest_filter={}  # schedule {}",
        name_of(policy), seed, testing::internal::GetArgvs()[0], name, all.schedules + 1));
    schedule.run([&] {
      Trial trial(schedule);
      scenario(trial);
    });
    longest = std::max(
        longest, policy == PolicyKind::random_walk && length == 0 ? schedule.together_steps() : 0);
    if (print_all) report(schedule, "nothing; printed on request");
    return std::pair(schedule.steps().size(), schedule.hash());
  };
  // The same in each process: initialises static variables, and finds the usual length.
  constexpr std::uint64_t kTrials = 4;
  for (std::uint64_t seed = 1; seed <= kTrials; ++seed) {
    once(PolicyKind::random_walk, seed, 0);
  }
  const char* const policy = std::getenv("HEADRACE_EXPLORE_POLICY");
  if (const char* const seed = std::getenv("HEADRACE_EXPLORE_SEED")) {
    const auto kind = policy != nullptr && std::string_view(policy) == "pct"
                          ? PolicyKind::pct
                          : PolicyKind::random_walk;
    print_all = std::getenv("HEADRACE_EXPLORE_STEPS") != nullptr;
    const auto [steps, hash] = once(kind, std::strtoull(seed, nullptr, 10), longest);
    fmt::print("{} operations, order {:016x}\n", steps, hash);
    return {.schedules = 1, .distinct = 1, .steps = steps};
  }
  const auto schedules = static_cast<std::uint64_t>(
      share * static_cast<double>(from_environment("HEADRACE_EXPLORE_SCHEDULES", kSchedules)));
  const auto begin = std::chrono::steady_clock::now();
  const std::uint64_t first = from_environment("HEADRACE_EXPLORE_FIRST", 1);
  for (std::uint64_t i = 0; i < schedules; ++i) {
    const PolicyKind kind =
        policy != nullptr
            ? (std::string_view(policy) == "pct" ? PolicyKind::pct : PolicyKind::random_walk)
        : i % 2 == 0 ? PolicyKind::random_walk
                     : PolicyKind::pct;
    const auto [steps, hash] = once(kind, first + i, longest);
    ++all.schedules;
    all.steps += steps;
    all.hash = (all.hash ^ hash) * 0x9e3779b97f4a7c15;
    orders.insert(hash);
  }
  all.distinct = orders.size();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  fmt::print("{} schedules, {} distinct, {} operations each, {:.0f} per second\n", all.schedules,
             all.distinct, all.steps / std::max<std::uint64_t>(all.schedules, 1),
             static_cast<double>(all.schedules) / took.count());
  return all;
}

}  // namespace headrace::explore
