// SPDX-License-Identifier: Apache-2.0
// What the rows of a profile say together: the line of each engine's copies, where another engine
// becomes the fastest, where loaded latency bends, and where caches end.
//
// Computed anew by each call from the rows that have a value; not stored, but for the copy rates,
// which `measure` puts into the profile's machine. Pure functions. Thread-safe.
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

// What rows of the experiment `copy` have in common that differ only in size, or in engine and
// size.
struct CopySeries {
  std::uint64_t cpu_node = 0;
  std::uint64_t from = 0;
  std::uint64_t to = 0;
  std::uint64_t threads = 1;
  std::string state;  // "cold" | "hot"
  friend auto operator<=>(const CopySeries&, const CopySeries&) = default;
};

// T(V) = latency + V / bandwidth, V the bytes that all threads copy together, each `bytes` of a
// row. Least squares of the relative errors, so that small copies count like large ones; a latency
// below zero is 0.
struct CopyFit {
  CopySeries series;
  std::string engine;
  double latency_ns = 0;
  double bandwidth = 0;  // bytes per second
  std::size_t points = 0;
  double median_error = 0;  // of |fitted / measured - 1| over the points
  double largest_error = 0;
};
// A fit for each series and engine with three sizes or more, in the order of the rows.
std::vector<CopyFit> copy_fits(const Profile& profile);

// From `bytes` on `engine` copies fastest, until the next crossover of the series. An engine takes
// over only where its interval does not overlap that of the one before.
struct Crossover {
  CopySeries series;
  Bytes bytes;         // the first measured size
  std::string engine;  // "cpu" and "memcpy" alone are compared: what a program can choose
};
// The first of a series is at the smallest size that both engines have.
std::vector<Crossover> crossovers(const Profile& profile);

// Where a curve of loaded latency bends: the point with the most bandwidth per latency (Kleinrock's
// power, ICC 1979). More traffic than there costs more latency than it gives bandwidth.
struct Knee {
  std::uint64_t cpu_node = 0;
  std::uint64_t memory_node = 0;
  std::uint64_t traffic_cpu_node = 0;
  std::uint64_t traffic_memory_node = 0;
  std::string mix;
  std::uint64_t threads = 0;  // of the traffic, where they were asked for; 0: all CPUs of its node
  double bandwidth = 0;       // bytes per second that the traffic reached there
  double latency_ns = 0;      // there
  // Without traffic, measured with the same chase; of curves of others, at their least bandwidth.
  double idle_ns = 0;
  // The most that the traffic reaches until a load takes 1.5 and 2 times as long as without it,
  // interpolated between two points; nothing: the curve does not get there, or begins above.
  std::optional<double> bandwidth_at_1_5;
  std::optional<double> bandwidth_at_2;
};
// The knee of each curve with four points or more that are neither "noisy" nor "few". A curve whose
// latency falls somewhere as the traffic grows, by more than its intervals allow, has none:
// something else ran.
std::vector<Knee> knees(const Profile& profile);

// A plateau of latency against working-set size.
struct CacheStep {
  std::uint64_t cpu_node = 0;
  std::uint64_t memory_node = 0;
  std::string name;  // "L1", "L2", ..., "memory": by the sizes of the machine's caches
  Bytes from;        // the sizes measured on it
  Bytes to;
  double latency_ns = 0;  // median
};
// The steps of each pair of nodes, from small to large. A size belongs to the smallest cache that
// holds it; sizes above a cache and below its double are half in the next and left out.
std::vector<CacheStep> cache_steps(const Profile& profile);

}  // namespace HEADRACE_API headrace
