// SPDX-License-Identifier: Apache-2.0
// The kernel's DAMON, of which a host has one: its kdamonds, the files that set one up, and a
// kdamond that observes which memory of a process is accessed. Thread-compatible.
//
// A setup of another program is left alone. The setup that observes a process is recorded in a file
// until it is removed, so that the next user removes the setup of a killed one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "headrace/result.h"
#include "headrace/units.h"
#include "host/files.h"
#include "host/settings/state_file.h"

namespace headrace {

inline constexpr const char* kKdamonds = "sys/kernel/mm/damon/admin/kdamonds";

// One of the kernel's threads for DAMON, as a program set it up.
struct Kdamond {
  int number = 0;
  std::string state;       // "on", "off"
  std::optional<int> pid;  // of the thread
  std::vector<std::string> operations;
  std::vector<std::string> actions;
};
// Errors: absent: no DAMON in the kernel; denied: takes root.
Result<std::vector<Kdamond>> kdamonds(const HostFiles& files);

// The switches of kernel features that use DAMON; while one is on, no program can. Errors: denied:
// takes root.
Result<std::vector<std::string>> damon_holders(const HostFiles& files);

// Checks that no program and no feature of the kernel uses DAMON. `config` is a kernel option that
// the caller needs besides, `option` the command's option that asked for DAMON. Errors:
// unsupported, denied: with the user's name.
Status check_damon_free(const HostFiles& files, const char* config, const char* option);

// A kdamond with one scheme. Sampled are processes (`pid`) or physical addresses (`regions`).
struct KdamondSetup {
  std::optional<int> pid;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> regions;
  Nanoseconds sample{};
  Nanoseconds aggregation{};
  std::optional<Nanoseconds> update;  // interval of the search for new mappings
  int least_regions = 100;
  std::optional<int> most_regions;
  std::string action;                // "stat", "migrate_hot"
  std::optional<NodeId> target;      // to which pages migrate
  std::uint64_t least_accesses = 0;  // samples with an access per aggregation
  std::uint64_t most_accesses = 0;
  std::optional<std::uint64_t> least_age;         // in aggregations
  std::optional<std::uint64_t> bytes_per_second;  // limit of migration
};
using FileValues = std::vector<std::pair<std::string, std::string>>;
// The files of a kdamond and their values in order of writing, without its switch ("state").
FileValues files_of(const KdamondSetup& setup, int number);

// Addresses with similar access, judged by sampled pages.
struct SampledRegion {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  double share = 0;  // of samples that saw an access, above 0 and at most 1
  Bytes bytes() const { return Bytes{end - begin}; }
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

// Sets up a kdamond for the process. Errors: unsupported: no DAMON in the kernel; denied: no
// permission, or another program has DAMON, with its name; exhausted: another tier has it.
Result<std::unique_ptr<RegionSampler>> watch_by_damon(int pid,
                                                      const std::filesystem::path& directory,
                                                      const HostFiles& files = HostFiles());

// Removes the setup of a killed user; true: there was one.
bool restore_damon(const std::filesystem::path& directory, const HostFiles& files = HostFiles());

}  // namespace headrace
