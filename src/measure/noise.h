// Whether the machine was quiet: measured again and again between the points of a session.
//
// Two sentinels, since one alone is not enough: on a shared host the idle latency stayed the same
// while loaded points moved by a third. `idle` is a short chase in memory, `loaded` reads with all
// CPUs for some milliseconds; both are compared with their own median over the session. And the
// kernel's count of time that the hypervisor took away (steal). What disturbs a single sample on
// our own CPUs shows in its cpu_share. Single-thread.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "headrace/machine.h"
#include "measure/experiment.h"

namespace headrace {

class Noise {
 public:
  // A sentinel for which no node can be used is left out.
  static Noise start(const Machine& machine, Random& random);

  // Looks now; the number of the look, from 0.
  std::size_t look();

  // For each look whether the machine was disturbed then; once all are taken.
  std::vector<bool> disturbed() const;

  // The looks themselves, to be kept with the profile.
  struct Look {
    double idle_ns = 0;
    double loaded_bytes_per_second = 0;
    double steal = 0;      // part of all CPU time since the look before
    double cpu_share = 1;  // of the sentinels' own threads
  };
  std::span<const Look> looks() const { return looks_; }

  // A sample with less of its CPUs than this was disturbed.
  static constexpr double kLeastShare = 0.97;

 private:
  Noise() = default;

  std::unique_ptr<Arenas> arenas_;
  std::unique_ptr<Arenas> loaded_arenas_;
  std::unique_ptr<Probe> idle_;
  std::unique_ptr<Probe> loaded_;
  std::vector<Look> looks_;
  double steal_ = 0;  // seconds, at the last look
  double total_ = 0;
};

// The judgement alone, pure: a look is disturbed if a sentinel is off its median by more than it
// usually varies, or the hypervisor took CPU time away.
std::vector<bool> disturbed_looks(std::span<const Noise::Look> looks);

}  // namespace headrace
