// SPDX-License-Identifier: Apache-2.0
// Measurements in a container whose seccomp profile forbids the system calls of memory policy, on
// memory that is absent, and with little CPU time.

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "headrace/measure.h"
#include "measure/experiments/experiments.h"
#include "measure/instruments/worker_pool.h"
#include "tests/support/container.h"
#include "tests/support/cpu_group.h"
#include "tests/support/machines.h"

namespace headrace {
namespace {

// Rows that are no failures: the machine lacks it, or the budget does not reach it.
bool is_absent(const Row& row) { return row.has_flag("absent") || row.has_flag("left_out"); }

// On one node memory is always in place; on several, every row says which right to grant.
[[noreturn]] void measure_denied() {
  const Machine machine = test::small_host(1_GiB, {.storage = {}});
  const bool several = session::memory_nodes(machine).size() > 1;
  test::forbid_policies();
  const auto profile = measure(machine, {.budget = std::chrono::seconds{2}, .width = 1});
  if (!profile) {
    std::fprintf(stderr, "%s\n", profile.error().message.c_str());
    std::_Exit(2);
  }
  std::size_t measured = 0;
  for (const Row& row : profile->rows) {
    if (row.value) ++measured;
    const bool told = several && row.reason.find("permitted") != std::string::npos;
    if (row.value || is_absent(row) || told) continue;
    std::fprintf(stderr, "%s: %s\n", row.key().c_str(), row.reason.c_str());
    std::_Exit(1);
  }
  std::_Exit(several || measured > 0 ? 0 : 3);
}

// With the time of `cpus` CPUs: exits with 0 if no more threads are measured, and a flag says so
// where that is less than all.
[[noreturn]] void measure_in(double cpus, const test::CpuGroup& group) {
  const Machine machine = test::small_host(128_MiB, {.storage = {}});
  if (cpus < 1) {  // on one CPU only the flag shows it
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(instruments::usable_cpus().front(), &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0) std::_Exit(6);
  }
  if (!group.enter()) std::_Exit(0);  // not root, or no such groups here
  const MeasureOptions options{.experiments = {"bandwidth"},
                               .only = {{"mix", std::string("read")}},
                               .budget = std::nullopt,
                               .rounds = 1,
                               .repetitions = 1,
                               .noise_checks = false};
  const auto profile = measure(machine, options);
  if (!profile || !profile->conditions.contains("cpu_limit")) std::_Exit(2);
  const bool less = cpus < static_cast<double>(instruments::usable_cpus().size());
  std::size_t measured = 0;
  for (const Row& row : profile->rows) {
    if (!row.value) continue;
    ++measured;
    const std::uint64_t* const threads = row.number("threads");
    if (threads != nullptr && *threads != 1) std::_Exit(3);
    if (row.has_flag("cpu_limited") != less) std::_Exit(4);
  }
  std::_Exit(measured > 0 ? 0 : 5);
}

TEST(MeasureDenied, NoMoreThreadsThanCpuTimeIsGivenFor) {
  GTEST_FLAG_SET(death_test_style, "fast");
  for (const double cpus : {1.0, 0.5}) {
    const test::CpuGroup group(cpus);
    EXPECT_EXIT(measure_in(cpus, group), testing::ExitedWithCode(0), "") << cpus;
  }
}

TEST(MeasureDenied, OneNodeIsMeasuredWithoutBindingAnything) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(measure_denied(), testing::ExitedWithCode(0), "");
}

// As if it had gone offline since the machine was discovered.
TEST(MeasureDenied, ANodeThatIsGoneIsARowWithTheReason) {
  Machine machine = Machine::discover({.storage = {}}).value();
  Node gone = *session::memory_nodes(machine).back();
  gone.id = NodeId{raw(gone.id) + 1};
  gone.name = "gone";
  gone.cpus = {};
  machine.nodes.push_back(gone);
  for (const char* experiment : {"latency", "bandwidth"}) {
    const auto profile = measure(machine, {.experiments = {experiment},
                                           .only = {{"memory_node", std::uint64_t{raw(gone.id)}}},
                                           .budget = std::chrono::seconds{2},
                                           .width = 1,
                                           .noise_checks = false});
    ASSERT_TRUE(profile.has_value()) << profile.error().message;
    std::size_t told = 0;
    for (const Row& row : profile->rows) {
      EXPECT_FALSE(row.value) << row.key();
      EXPECT_EQ(row.reason.find('\n'), std::string::npos);
      if (is_absent(row)) continue;
      EXPECT_NE(row.reason.find("node " + std::to_string(raw(gone.id))), std::string::npos)
          << row.reason;
      ++told;
    }
    EXPECT_GT(told, 0u) << experiment;
  }
}

}  // namespace
}  // namespace headrace
