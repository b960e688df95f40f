#include "measure/noise.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>

#include "headrace/statistics.h"
#include "measure/team.h"

namespace headrace {
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
  std::ifstream stat("/proc/stat");
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
std::unique_ptr<Probe> prepare_first(const std::vector<Point>& points, Arenas& arenas,
                                     Random& random) {
  for (const Point& point : points) {
    if (point.rank != 0 || !point.prepare) continue;
    if (auto probe = point.prepare(arenas, random)) return *std::move(probe);
  }
  return nullptr;
}

}  // namespace

Noise Noise::start(const Machine& machine, Random& random) {
  Noise noise;
  noise.arenas_ = std::make_unique<Arenas>(machine);
  // Two arenas: that of the first sentinel is full of pointers.
  noise.loaded_arenas_ = std::make_unique<Arenas>(machine);
  noise.idle_ = prepare_first(latency_points({machine}), *noise.arenas_, random);
  noise.loaded_ = prepare_first(bandwidth_points({machine}), *noise.loaded_arenas_, random);
  const CpuTime now = cpu_time();
  noise.steal_ = now.steal;
  noise.total_ = now.total;
  return noise;
}

std::size_t Noise::look() {
  Look look;
  const auto hear = [&](Probe* sentinel, double& value) {
    if (sentinel == nullptr) return;
    if (const auto sample = sentinel->sample()) {
      value = sample->value;
      look.cpu_share = std::min(look.cpu_share, sample->cpu_share);
    }
  };
  hear(idle_.get(), look.idle_ns);
  hear(loaded_.get(), look.loaded_bytes_per_second);
  const CpuTime now = cpu_time();
  if (now.total > total_) look.steal = (now.steal - steal_) / (now.total - total_);
  steal_ = now.steal;
  total_ = now.total;
  looks_.push_back(look);
  return looks_.size() - 1;
}

std::vector<bool> Noise::disturbed() const { return disturbed_looks(looks_); }

std::vector<bool> disturbed_looks(std::span<const Noise::Look> looks) {
  std::vector<double> idle;
  std::vector<double> loaded;
  for (const Noise::Look& look : looks) {
    idle.push_back(std::log(std::max(look.idle_ns, 1e-3)));
    loaded.push_back(std::log(std::max(look.loaded_bytes_per_second, 1.0)));
  }
  const std::vector<bool> idle_off = off(idle, kLeastIdle);
  const std::vector<bool> loaded_off = off(loaded, kLeastLoaded);
  std::vector<bool> result;
  for (std::size_t i = 0; i < looks.size(); ++i) {
    result.push_back(idle_off[i] || loaded_off[i] || looks[i].steal > kMostSteal ||
                     looks[i].cpu_share < Noise::kLeastShare);
  }
  return result;
}

}  // namespace headrace
