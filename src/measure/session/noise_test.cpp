// SPDX-License-Identifier: Apache-2.0
#include "measure/session/noise.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
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
  checks[9].cpu_share = 0.6;
  const auto disturbed = disturbed_checks(checks);
  for (std::size_t i = 0; i < checks.size(); ++i) {
    EXPECT_EQ(disturbed[i], i == 1 || i == 4 || i == 6 || i == 9) << i;
  }
}

// The loud half of a session must not make the quiet one look disturbed, nor hide itself by being
// usual: up to half of the checks.
TEST(NoiseTest, AThirdThatIsLoudIsFound) {
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
// container that has used its share.
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
