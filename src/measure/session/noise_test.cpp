// SPDX-License-Identifier: Apache-2.0
#include "measure/session/noise.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <numeric>
#include <sstream>
#include <string>
#include <thread>

#include "measure/experiments/experiments.h"
#include "measure/instruments/worker_pool.h"
#include "tests/support/machines.h"

namespace headrace::session {
namespace {

Sentinels sentinels(const Machine& machine) {
  return {.idle = experiment_latency::kExperiment.points({machine}),
          .loaded = experiment_bandwidth::kExperiment.points({machine})};
}

std::vector<NoiseCheck> quiet_checks(std::size_t count) {
  std::vector<NoiseCheck> checks(count);
  for (std::size_t i = 0; i < count; ++i) {
    const double wobble = 1 + 0.01 * static_cast<double>(i % 3);
    checks[i] = {.idle_ns = 100 * wobble, .loaded_bytes_per_second = 3e10 / wobble};
  }
  return checks;
}

TEST(NoiseTest, QuietChecksAreNotDisturbed) {
  for (const bool disturbed : disturbed_checks(quiet_checks(20))) EXPECT_FALSE(disturbed);
  EXPECT_TRUE(disturbed_checks({}).empty());
  EXPECT_EQ(disturbed_checks(quiet_checks(1)), std::vector<bool>{false});
}

TEST(NoiseTest, EachSentinelIsHeard) {
  auto checks = quiet_checks(12);
  checks[1].idle_ns *= 1.2;
  checks[4].loaded_bytes_per_second *= 0.7;
  checks[6].steal = 0.1;
  checks[8].steal_of_one = 0.2;
  checks[9].cpu_share = 0.6;
  const auto disturbed = disturbed_checks(checks);
  for (std::size_t i = 0; i < checks.size(); ++i) {
    EXPECT_EQ(disturbed[i], i == 1 || i == 4 || i == 6 || i == 8 || i == 9) << i;
  }
}

// As on a virtual machine of 64 CPUs, one of which is taken away for half of the time.
TEST(NoiseTest, TheStealOfOneCpuIsNotLostAmongTheOthers) {
  const auto stat = [](int second) {
    std::string text = "cpu  1 2 3 4 5 6 7 8 0 0\n";
    for (int cpu = 0; cpu < 64; ++cpu) {
      const int stolen = cpu == 17 ? 50 * second : 0;
      text += "cpu" + std::to_string(cpu) + " " + std::to_string(100 * second - stolen) +
              " 0 0 10 0 0 0 " + std::to_string(stolen) + " 0 0\n";
    }
    return text + "intr 5 0\n";
  };
  const auto steal = [&](const CpuSet& cpus) {
    std::istringstream before(stat(1));
    std::istringstream now(stat(3));
    return steal_between(read_cpu_times(before, cpus), read_cpu_times(now, cpus));
  };
  CpuSet all(64);
  std::iota(all.begin(), all.end(), 0U);
  EXPECT_DOUBLE_EQ(steal(all).of_one, 0.5);
  EXPECT_DOUBLE_EQ(steal(all).of_all, 0.5 / 64);
  EXPECT_DOUBLE_EQ(steal({16, 18}).of_one, 0) << "CPUs that this process does not use";
  EXPECT_DOUBLE_EQ(steal_between({}, {}).of_one, 0);
  const CpuTimes first{{0, {.steal = 0, .wanted = 10}}};
  const CpuTimes soon{{0, {.steal = 1, .wanted = 15}}};
  EXPECT_DOUBLE_EQ(steal_between(first, soon).of_one, 0) << "one tick of five";
  EXPECT_DOUBLE_EQ(steal_between(first, soon).of_all, 0);
}

// Four of 384 CPUs are in use, and each loses a twentieth: the same share as on a machine of four.
TEST(NoiseTest, StealIsAPartOfTheTimeOfCpusInUse) {
  const auto stat = [](int second) {
    std::string text;
    for (int cpu = 0; cpu < 384; ++cpu) {
      const int used = cpu < 4 ? 95 * second : 0, stolen = cpu < 4 ? 5 * second : 0;
      const int idle = 100 * second - used - stolen;
      text += "cpu" + std::to_string(cpu) + " " + std::to_string(used) + " 0 0 " +
              std::to_string(idle / 2) + " " + std::to_string(idle - idle / 2) + " 0 0 " +
              std::to_string(stolen) + " 0 0\n";
    }
    return text;
  };
  std::istringstream before(stat(1));
  std::istringstream now(stat(3));
  CpuSet all(384);
  std::iota(all.begin(), all.end(), 0U);
  const Steal steal = steal_between(read_cpu_times(before, all), read_cpu_times(now, all));
  EXPECT_DOUBLE_EQ(steal.of_all, 0.05);
  EXPECT_DOUBLE_EQ(steal.of_one, 0.05);
  auto checks = quiet_checks(3);
  checks[1].steal = steal.of_all;
  checks[1].steal_of_one = steal.of_one;
  EXPECT_EQ(disturbed_checks(checks), (std::vector<bool>{false, true, false}));
}

// The loud part of a session, up to half of the checks, must neither make the quiet part look
// disturbed, nor pass as usual.
TEST(NoiseTest, DisturbedThirdOfChecks_IsFound) {
  auto checks = quiet_checks(30);
  for (std::size_t i = 20; i < 30; ++i) checks[i].loaded_bytes_per_second *= 0.6;
  const auto disturbed = disturbed_checks(checks);
  EXPECT_EQ(std::count(disturbed.begin(), disturbed.end(), true), 10);
  EXPECT_TRUE(disturbed[25]);
}

// A planted disturbance: another thread on every CPU takes half of it.
TEST(NoiseTest, ACompetingProgramIsNoticed) {
  const Machine machine = test::small_host();
  Random random(1);
  Noise noise = Noise::start(machine, sentinels(machine), random);
  noise.check();
  std::atomic<bool> stop{false};
  {
    std::jthread others([&] {
      (void)run_pinned(usable_cpus(), [&](std::size_t) {
        while (!stop) {
        }
      });
    });
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
    for (int i = 0; i < 3; ++i) noise.check();
    stop = true;
  }
  double least = 1;
  for (const NoiseCheck& check : noise.checks()) least = std::min(least, check.cpu_share);
  EXPECT_LT(least, Noise::kLeastShare);
  const auto disturbed = noise.disturbed();
  EXPECT_TRUE(std::ranges::any_of(disturbed, [](bool d) { return d; }));
}

// A planted quota: another process stops this one for half of the time, as the kernel stops a
// container over its quota.
TEST(NoiseTest, AQuotaIsNoticed) {
  const Machine machine = test::small_host();
  Random random(1);
  Noise noise = Noise::start(machine, sentinels(machine), random);
  noise.check();
  const pid_t own = getpid();
  const pid_t other = fork();
  ASSERT_GE(other, 0);
  if (other == 0) {
    for (int i = 0; i < 40 && getppid() == own; ++i) {
      kill(own, i % 2 == 0 ? SIGSTOP : SIGCONT);
      usleep(10'000);
    }
    kill(own, SIGCONT);
    _exit(0);
  }
  while (waitpid(other, nullptr, WNOHANG) == 0) noise.check();
  double least = 1;
  for (const NoiseCheck& check : noise.checks()) least = std::min(least, check.cpu_share);
  EXPECT_LT(least, 0.9);
  const auto disturbed = noise.disturbed();
  EXPECT_TRUE(std::ranges::any_of(disturbed, [](bool d) { return d; }));
}

}  // namespace
}  // namespace headrace::session
