// SPDX-License-Identifier: Apache-2.0
#include "measure/session/noise.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string>

#include "headrace/statistics.h"
#include "measure/instruments/worker_pool.h"

namespace headrace::session {
namespace {

// A sentinel is off if its logarithm is further from the median than this many robust sigmas
// (1.4826 x MAD), and at least by the limits below: quiet machines vary by one per cent, and one
// more is no disturbance.
constexpr double kSigmas = 5;
constexpr double kLeastIdle = 0.08;
constexpr double kLeastLoaded = 0.12;
constexpr double kMostSteal = 0.02;
// The same for a single CPU, of which a check sees some hundred ticks.
constexpr double kMostStealOfOne = 0.1;
// With fewer ticks, of one CPU or of all, a single stolen tick would exceed that.
constexpr double kFewTicks = 20;
constexpr double kFewTicksOfAll = 50;

CpuTimes cpu_times() {
  std::ifstream stat("/proc/stat");
  return read_cpu_times(stat, instruments::usable_cpus());
}

// Which values are off; `least`: the smallest deviation that counts.
std::vector<bool> off(const std::vector<double>& logs, double least) {
  const double middle = median(logs).value_or(0);
  const double sigma = 1.4826 * median_absolute_deviation(logs).value_or(0);
  std::vector<bool> result;
  for (const double value : logs) {
    result.push_back(std::abs(value - middle) > std::max(least, kSigmas * sigma));
  }
  return result;
}

// The first point of rank 0 that can be prepared, since a node may be forbidden or full. nullptr:
// none can.
std::unique_ptr<Probe> prepare_first(const std::vector<Point>& points, BufferPool& buffers,
                                     Random& random) {
  for (const Point& point : points) {
    if (point.rank != 0 || !point.prepare) continue;
    if (auto probe = point.prepare(buffers, random)) return *std::move(probe);
  }
  return nullptr;
}

}  // namespace

CpuTimes read_cpu_times(std::istream& stat, const CpuSet& cpus) {
  CpuTimes times;
  for (std::string line; std::getline(stat, line);) {
    std::istringstream words(line);
    std::string word;
    words >> word;
    unsigned cpu = 0;
    const char* const end = word.data() + word.size();
    if (!word.starts_with("cpu") || word == "cpu") continue;
    if (std::from_chars(word.data() + 3, end, cpu).ptr != end) continue;
    if (std::ranges::find(cpus, cpu) == cpus.end()) continue;
    double ticks = 0;
    for (int i = 0; i < 8 && words >> ticks; ++i) {
      const bool is_idle = i == 3 || i == 4;  // idle, iowait
      if (!is_idle) times[cpu].wanted += ticks;
      if (i == 7) times[cpu].steal = ticks;
    }
  }
  return times;
}

Steal steal_between(const CpuTimes& before, const CpuTimes& now) {
  Steal steal;
  double stolen = 0;
  double wanted = 0;
  for (const auto& [cpu, time] : now) {
    const auto then = before.find(cpu);
    if (then == before.end() || time.wanted <= then->second.wanted) continue;
    const double own = time.steal - then->second.steal;
    const double own_wanted = time.wanted - then->second.wanted;
    if (own_wanted >= kFewTicks) steal.of_one = std::max(steal.of_one, own / own_wanted);
    stolen += own;
    wanted += own_wanted;
  }
  if (wanted >= kFewTicksOfAll) steal.of_all = stolen / wanted;
  return steal;
}

Noise Noise::start(const Machine& machine, const Sentinels& sentinels, Random& random) {
  Noise noise;
  noise.idle_buffers_ = std::make_unique<BufferPool>(machine);
  // Separate buffers: those of the first sentinel are full of pointers.
  noise.loaded_buffers_ = std::make_unique<BufferPool>(machine);
  noise.idle_ = prepare_first(sentinels.idle, *noise.idle_buffers_, random);
  noise.loaded_ = prepare_first(sentinels.loaded, *noise.loaded_buffers_, random);
  noise.times_ = cpu_times();
  return noise;
}

std::size_t Noise::check() {
  NoiseCheck check;
  const auto hear = [&](Probe* sentinel, double& value) {
    if (sentinel == nullptr) return;
    if (const auto sample = sentinel->sample()) {
      value = sample->value;
      check.cpu_share = std::min(check.cpu_share, sample->cpu_share);
    }
  };
  hear(idle_.get(), check.idle_ns);
  hear(loaded_.get(), check.loaded_bytes_per_second);
  CpuTimes now = cpu_times();
  const Steal steal = steal_between(times_, now);
  check.steal = steal.of_all;
  check.steal_of_one = steal.of_one;
  times_ = std::move(now);
  checks_.push_back(check);
  return checks_.size() - 1;
}

std::vector<bool> Noise::disturbed() const { return disturbed_checks(checks_); }

std::vector<bool> disturbed_checks(std::span<const NoiseCheck> checks) {
  std::vector<double> idle;
  std::vector<double> loaded;
  for (const NoiseCheck& check : checks) {
    idle.push_back(std::log(std::max(check.idle_ns, 1e-3)));
    loaded.push_back(std::log(std::max(check.loaded_bytes_per_second, 1.0)));
  }
  const std::vector<bool> idle_off = off(idle, kLeastIdle);
  const std::vector<bool> loaded_off = off(loaded, kLeastLoaded);
  std::vector<bool> result;
  for (std::size_t i = 0; i < checks.size(); ++i) {
    result.push_back(idle_off[i] || loaded_off[i] || checks[i].steal > kMostSteal ||
                     checks[i].steal_of_one > kMostStealOfOne ||
                     checks[i].cpu_share < Noise::kLeastShare);
  }
  return result;
}

}  // namespace headrace::session
