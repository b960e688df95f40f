// SPDX-License-Identifier: Apache-2.0
#include "measure/session/noise.h"

#include <fmt/core.h>
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

struct Ticks {
  int used = 0;
  int stolen = 0;  // of 100 a second; the rest is idle
};

// The steal of some CPUs within two seconds of a machine of `count` CPUs, where CPU i spends each
// second as of(i).
template <class Of>
Steal steal_of(int count, const CpuSet& cpus, const Of& of) {
  const auto times = [&](int second) {
    std::string text = "cpu  1 2 3 4 5 6 7 8 0 0\n";
    for (int cpu = 0; cpu < count; ++cpu) {
      const Ticks ticks = of(cpu);
      const int idle = 100 - ticks.used - ticks.stolen;
      text += fmt::format("cpu{} {} 0 0 {} {} 0 0 {} 0 0\n", cpu, ticks.used * second,
                          idle / 2 * second, (idle - idle / 2) * second, ticks.stolen * second);
    }
    std::istringstream stat(text + "intr 5 0\n");
    return read_cpu_times(stat, cpus);
  };
  return steal_between(times(1), times(3));
}

CpuSet first_cpus(std::size_t count) {
  CpuSet all(count);
  std::iota(all.begin(), all.end(), 0U);
  return all;
}

// As on a virtual machine of 64 CPUs, one of which is taken away for half of the time.
TEST(NoiseTest, TheStealOfOneCpuIsNotLostAmongTheOthers) {
  const auto steal = [&](const CpuSet& cpus) {
    return steal_of(64, cpus, [](int cpu) { return cpu == 17 ? Ticks{50, 50} : Ticks{100, 0}; });
  };
  const CpuSet all = first_cpus(64);
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
  const Steal steal =
      steal_of(384, first_cpus(384), [](int cpu) { return cpu < 4 ? Ticks{95, 5} : Ticks{}; });
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

// Checks the host before and during a planted disturbance, which takes half of the CPU time.
class PlantedNoise : public testing::Test {
 protected:
  PlantedNoise() { noise_.check(); }
  void expect_noticed(double least_share) const {
    const auto least = std::ranges::min(noise_.checks(), {}, &NoiseCheck::cpu_share);
    EXPECT_LT(least.cpu_share, least_share);
    EXPECT_GT(std::ranges::count(noise_.disturbed(), true), 0);
  }

  const Machine machine_ = test::small_host();
  Random random_{1};
  Noise noise_ = Noise::start(machine_, sentinels(machine_), random_);
};

TEST_F(PlantedNoise, ACompetingProgramIsNoticed) {
  std::atomic<bool> stop{false};
  {
    std::jthread others([&] {
      (void)run_pinned(usable_cpus(), [&](std::size_t) {
        while (!stop) {
        }
      });
    });
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
    for (int i = 0; i < 3; ++i) noise_.check();
    stop = true;
  }
  expect_noticed(Noise::kLeastShare);
}

// Another process stops this one, as the kernel stops a container over its quota.
TEST_F(PlantedNoise, AQuotaIsNoticed) {
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
  while (waitpid(other, nullptr, WNOHANG) == 0) noise_.check();
  expect_noticed(0.9);
}

}  // namespace
}  // namespace headrace::session
