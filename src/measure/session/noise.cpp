// SPDX-License-Identifier: Apache-2.0
#include "measure/session/noise.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <string>

#include "core/text/files.h"
#include "headrace/statistics.h"

namespace headrace::session {
namespace {

// A sentinel is off when its logarithm is further from the median than this many robust sigmas
// (1.4826 x MAD), and at least by the part below: quiet machines vary by a per cent, and a per cent
// more is no disturbance.
constexpr double kSigmas = 5;
constexpr double kLeastIdle = 0.08;
constexpr double kLeastLoaded = 0.12;
constexpr double kMostSteal = 0.02;

struct CpuTime {
  double steal = 0;
  double total = 0;
};

// The first line of /proc/stat, in ticks: user nice system idle iowait irq softirq steal ...
CpuTime cpu_time() {
  std::istringstream stat(first_line("/proc/stat"));
  std::string word;
  stat >> word;
  CpuTime time;
  double ticks = 0;
  for (int i = 0; i < 8 && stat >> ticks; ++i) {
    time.total += ticks;
    if (i == 7) time.steal = ticks;
  }
  return time;
}

// Which values are off, given how much is always too little.
std::vector<bool> off(const std::vector<double>& logs, double least) {
  const double middle = median(logs).value_or(0);
  const double sigma = 1.4826 * median_absolute_deviation(logs).value_or(0);
  std::vector<bool> result;
  for (const double value : logs) {
    result.push_back(std::abs(value - middle) > std::max(least, kSigmas * sigma));
  }
  return result;
}

// The first point of rank 0 that can be prepared: a node may be forbidden or full. nullptr: none
// can.
std::unique_ptr<Probe> prepare_first(const std::vector<Point>& points, BufferPool& buffers,
                                     Random& random) {
  for (const Point& point : points) {
    if (point.rank != 0 || !point.prepare) continue;
    if (auto probe = point.prepare(buffers, random)) return *std::move(probe);
  }
  return nullptr;
}

}  // namespace

Noise Noise::start(const Machine& machine, const Sentinels& sentinels, Random& random) {
  Noise noise;
  noise.idle_buffers_ = std::make_unique<BufferPool>(machine);
  // Buffers of its own: those of the first sentinel are full of pointers.
  noise.loaded_buffers_ = std::make_unique<BufferPool>(machine);
  noise.idle_ = prepare_first(sentinels.idle, *noise.idle_buffers_, random);
  noise.loaded_ = prepare_first(sentinels.loaded, *noise.loaded_buffers_, random);
  const CpuTime now = cpu_time();
  noise.steal_ = now.steal;
  noise.total_ = now.total;
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
  const CpuTime now = cpu_time();
  if (now.total > total_) check.steal = (now.steal - steal_) / (now.total - total_);
  steal_ = now.steal;
  total_ = now.total;
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
                     checks[i].cpu_share < Noise::kLeastShare);
  }
  return result;
}

}  // namespace headrace::session
