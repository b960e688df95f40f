// SPDX-License-Identifier: Apache-2.0
// DAMON of the kernel, watching the addresses of another process: where it was accessed lately, and
// in how many of the samples. Thread-compatible.
//
// It is one for the host: what somebody else has set up is left alone. Ours is noted in a file
// until it is taken away, so that the next who begins takes away what a killed one left.
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

// Addresses that were accessed alike, as far as a page of them that is sampled tells.
struct SampledRegion : TrackedRange {
  double share = 0;  // of the samples that saw an access, above 0 and at most 1
};

// Whoever samples which memory of a process is accessed.
class RegionSampler {
 public:
  virtual ~RegionSampler() = default;
  // What was accessed in the last span of samples, ascending and disjoint; the rest was not.
  // Waits for the end of the span. absent: the process has ended; denied: somebody else has
  // switched it off.
  virtual Result<std::vector<SampledRegion>> look() = 0;
  // Time between two samples, and of a span.
  virtual Nanoseconds sample() const = 0;
  virtual Nanoseconds span() const = 0;
  // CPU time that it has taken so far.
  virtual Nanoseconds cpu() = 0;
};

// Sets up a kdamond for the process. unsupported: a kernel without; denied: not as this user, or
// somebody else has it, with who; exhausted: another tier has it. Files are those below `root`.
Result<std::unique_ptr<RegionSampler>> watch_by_damon(int pid,
                                                      const std::filesystem::path& directory,
                                                      const std::filesystem::path& root = "/");

// Takes away what a killed one left; true: there was something.
bool restore_damon(const std::filesystem::path& directory, const std::filesystem::path& root = "/");

}  // namespace headrace
