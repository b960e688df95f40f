// SPDX-License-Identifier: Apache-2.0
// Checks repeatedly, between the points of a session, whether the machine is quiet. Single-thread.
//
// Signals:
// - `idle`, a short chase in memory, compared with its median over the session;
// - `loaded`, reads by all CPUs for some milliseconds, compared likewise. Both are needed: on a
//   shared host idle latency stayed constant while loaded points moved by a third;
// - steal: the share of CPU time that the hypervisor took away. It is relative to the time in which
//   CPUs had work, because idle CPUs lose none and would hide the loss of busy ones. It is computed
//   for all usable CPUs together and for each: losing one of 64 CPUs disturbs all points that use
//   it, but is a small share of all.
//
// A disturbance of a single sample on our own CPUs shows in its cpu_share.
#pragma once

#include <iosfwd>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "headrace/machine.h"
#include "measure/session/experiment.h"

namespace headrace::session {

// Points measured as signals: of each list the first point of rank 0 that can be prepared, since a
// node may be forbidden or full.
struct Sentinels {
  std::vector<Point> idle = {};
  std::vector<Point> loaded = {};
};

// The readings of one check; kept in the profile.
struct NoiseCheck {
  double idle_ns = 0;
  double loaded_bytes_per_second = 0;
  double steal = 0;         // share of wanted CPU time since the last check
  double steal_of_one = 0;  // of the CPU that lost most
  double cpu_share = 1;     // of the sentinels' own threads
};

// Ticks of a CPU since the host started.
struct CpuTicks {
  double steal = 0;
  double wanted = 0;  // ran, or had work and was stolen
};
using CpuTimes = std::map<unsigned, CpuTicks>;
// Reads the times of these CPUs from lines of /proc/stat: "cpu3 user nice system idle iowait irq
// softirq steal".
CpuTimes read_cpu_times(std::istream& stat, const CpuSet& cpus);

// Shares of the wanted CPU time between two readings that the hypervisor took away; 0 if the time
// is too short to judge.
struct Steal {
  double of_all = 0;
  double of_one = 0;  // of the CPU that lost most
};
Steal steal_between(const CpuTimes& before, const CpuTimes& now);

class Noise {
 public:
  static Noise start(const Machine& machine, const Sentinels& sentinels, Random& random);

  // Makes a check and returns its number, from 0.
  std::size_t check();

  // For each check, whether the machine was disturbed. Call it after the last check.
  std::vector<bool> disturbed() const;

  std::span<const NoiseCheck> checks() const { return checks_; }

  // A sample with a smaller CPU share was disturbed.
  static constexpr double kLeastShare = 0.97;

 private:
  Noise() = default;

  std::unique_ptr<BufferPool> idle_buffers_;
  std::unique_ptr<BufferPool> loaded_buffers_;
  std::unique_ptr<Probe> idle_;
  std::unique_ptr<Probe> loaded_;
  std::vector<NoiseCheck> checks_;
  CpuTimes times_;  // at the last check
};

// The judgement alone, pure. A check is disturbed if a sentinel is off its median by more than its
// usual variation, or the hypervisor took CPU time.
std::vector<bool> disturbed_checks(std::span<const NoiseCheck> checks);

}  // namespace headrace::session
