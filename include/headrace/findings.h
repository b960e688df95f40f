// SPDX-License-Identifier: Apache-2.0
// Conclusions from the rows of a profile: the cost line of each engine's copies, the sizes at which
// another engine becomes the fastest, the knees of loaded latency, and the ends of caches.
//
// Each call computes them from the rows that have a value. Only copy rates are stored: `measure`
// puts them into the profile's machine. Pure functions. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "headrace/export.h"
#include "headrace/profile.h"
#include "headrace/units.h"

namespace HEADRACE_API headrace {

// The common parameters of `copy` rows that differ only in size, or in engine and size.
struct CopySeries {
  std::uint64_t cpu_node = 0;
  std::uint64_t from = 0;
  std::uint64_t to = 0;
  std::uint64_t threads = 1;
  std::string state;  // "cold" | "hot"
  friend auto operator<=>(const CopySeries&, const CopySeries&) = default;
};

// The line T(V) = latency + V / bandwidth. V is the number of bytes that all threads copy together.
// Each thread copies the row's `bytes`. The fit minimises squared relative errors, so small copies
// count like large ones. A negative latency becomes 0.
struct CopyFit {
  CopySeries series;
  std::string engine;
  double latency_ns = 0;
  double bandwidth = 0;  // bytes per second
  std::size_t points = 0;
  double median_error = 0;  // of |fitted / measured - 1| over the points
  double largest_error = 0;
};
// A fit for each series and engine with at least three sizes, in the order of the rows.
std::vector<CopyFit> copy_fits(const Profile& profile);

// From `bytes` on, `engine` copies fastest, until the series' next crossover. An engine takes over
// only if its interval does not overlap the previous engine's.
struct Crossover {
  CopySeries series;
  Bytes bytes;         // the first measured size
  std::string engine;  // only "cpu" and "memcpy" are compared: a program can choose these
};
// A series begins with the smallest size that both engines have.
std::vector<Crossover> crossovers(const Profile& profile);

// The knee of a loaded-latency curve: its point of most bandwidth per latency (Kleinrock's power,
// ICC 1979). Beyond it, traffic adds more latency than bandwidth.
struct Knee {
  std::uint64_t cpu_node = 0;
  std::uint64_t memory_node = 0;
  std::uint64_t traffic_cpu_node = 0;
  std::uint64_t traffic_memory_node = 0;
  std::string mix;
  std::uint64_t threads = 0;  // of the traffic; 0: all CPUs of its node
  double bandwidth = 0;       // bytes per second of the traffic at the knee
  double latency_ns = 0;      // at the knee
  // Without traffic, by the same chase; for third-party curves at their least bandwidth.
  double idle_ns = 0;
  // The most bandwidth at which a load takes at most 1.5 (2) times as long as without traffic,
  // interpolated between two points. Nothing: the curve ends below, or begins above, this latency.
  std::optional<double> bandwidth_at_1_5;
  std::optional<double> bandwidth_at_2;
};
// The knee of each curve with at least four points that are neither "noisy" nor "few". A curve has
// no knee if its latency falls with growing traffic by more than its intervals allow: then
// something else was running.
std::vector<Knee> knees(const Profile& profile);

// A plateau of latency against working-set size.
struct CacheStep {
  std::uint64_t cpu_node = 0;
  std::uint64_t memory_node = 0;
  std::string name;  // "L1", "L2", ..., "memory": by the sizes of the machine's caches
  Bytes from;        // the range of sizes measured on it
  Bytes to;
  double latency_ns = 0;  // median
};
// The steps of each pair of nodes, from small to large. A size belongs to the smallest cache that
// holds it. Sizes between a cache's size and its double are left out: half of their accesses hit
// the next level.
std::vector<CacheStep> cache_steps(const Profile& profile);

}  // namespace HEADRACE_API headrace
