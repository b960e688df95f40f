// SPDX-License-Identifier: Apache-2.0
// Whether the machine was quiet: checked again and again between the points of a session.
//
// Two sentinels, since one alone is not enough: on a shared host the idle latency stayed the same
// while loaded points moved by a third. `idle` is a short chase in memory, `loaded` reads with all
// CPUs for some milliseconds; both are compared with their own median over the session. And the
// kernel's count of time that the hypervisor took away (steal), as a part of the time for which
// CPUs had something to run: idle CPUs lose none, and would hide what those in use lose. It is
// counted of all CPUs that this process may use together and of each: one CPU of 64 that is taken
// away disturbs all points that use it, and is little of all. What disturbs a single sample on our
// own CPUs shows in its cpu_share. Single-thread.
#pragma once

#include <iosfwd>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "headrace/machine.h"
#include "measure/session/experiment.h"

namespace headrace::session {

// The points that are measured to hear disturbances: of each list the first of rank 0 that can be
// prepared, since a node may be forbidden or full.
struct Sentinels {
  std::vector<Point> idle = {};
  std::vector<Point> loaded = {};
};

// What one check heard; kept with the profile.
struct NoiseCheck {
  double idle_ns = 0;
  double loaded_bytes_per_second = 0;
  double steal = 0;         // part of the CPU time that was wanted since the check before
  double steal_of_one = 0;  // and of the CPU that lost most
  double cpu_share = 1;     // of the sentinels' own threads
};

// Ticks of each CPU since the host started.
struct CpuTicks {
  double steal = 0;
  double wanted = 0;  // in which it ran, or had something to run and was stolen
};
using CpuTimes = std::map<unsigned, CpuTicks>;
// The times of these CPUs, from lines of /proc/stat: "cpu3 user nice system idle iowait irq softirq
// steal".
CpuTimes read_cpu_times(std::istream& stat, const CpuSet& cpus);

// Parts of the CPU time wanted between two readings that the hypervisor took away; 0 where that is
// too little time to say.
struct Steal {
  double of_all = 0;
  double of_one = 0;  // of the CPU that lost most
};
Steal steal_between(const CpuTimes& before, const CpuTimes& now);

class Noise {
 public:
  static Noise start(const Machine& machine, const Sentinels& sentinels, Random& random);

  // Checks now; the number of the check, from 0.
  std::size_t check();

  // For each check whether the machine was disturbed then; once all are done.
  std::vector<bool> disturbed() const;

  std::span<const NoiseCheck> checks() const { return checks_; }

  // A sample with less of its CPUs than this was disturbed.
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

// The judgement alone, pure: a check is disturbed if a sentinel is off its median by more than it
// usually varies, or the hypervisor took CPU time away.
std::vector<bool> disturbed_checks(std::span<const NoiseCheck> checks);

}  // namespace headrace::session
