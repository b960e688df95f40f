// SPDX-License-Identifier: Apache-2.0
// The kernel's DAMON, observing the addresses of another process: which memory was accessed lately,
// and in which share of samples. Thread-compatible.
//
// The host has one DAMON; a setup of another program is left alone. Our setup is recorded in a file
// until it is removed, so that the next user removes the setup of a killed one.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "headrace/result.h"
#include "headrace/units.h"
#include "tier/settings/state_file.h"
#include "tier/source.h"

namespace headrace {

// Addresses with similar access, judged by sampled pages.
struct SampledRegion : TrackedRange {
  double share = 0;  // of samples that saw an access, above 0 and at most 1
};

// Samples which memory of a process is accessed.
class RegionSampler {
 public:
  virtual ~RegionSampler() = default;
  // Waits for the end of the span. Returns the regions accessed in it, ascending and disjoint; the
  // rest was not accessed. Errors: absent: the process has ended; denied: another program has
  // switched DAMON off.
  virtual Result<std::vector<SampledRegion>> look() = 0;
  // Time between two samples, and length of a span.
  virtual Nanoseconds sample() const = 0;
  virtual Nanoseconds span() const = 0;
  // CPU time used so far.
  virtual Nanoseconds cpu() = 0;
};

// Sets up a kdamond for the process. Files are relative to `root`. Errors: unsupported: no DAMON in
// the kernel; denied: no permission, or another program has DAMON, with its name; exhausted:
// another tier has it.
Result<std::unique_ptr<RegionSampler>> watch_by_damon(int pid,
                                                      const std::filesystem::path& directory,
                                                      const std::filesystem::path& root = "/");

// Removes the setup of a killed user; true: there was one.
bool restore_damon(const std::filesystem::path& directory, const std::filesystem::path& root = "/");

}  // namespace headrace
