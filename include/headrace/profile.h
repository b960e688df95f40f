// SPDX-License-Identifier: Apache-2.0
// A profile: a machine with its measurements, as one JSON document; and the comparison of profiles.
//
//     const auto before = headrace::Profile::load("before.json");
//     const auto after = headrace::Profile::load("after.json");
//     if (!before || !after) return headrace::Unexpected(!before ? before.error() : after.error());
//     const headrace::Comparison comparison = headrace::compare(*before, *after);
//
// A row is one point of one experiment: its parameters, and its result or the reason why it has
// none. The result is a summary over fresh mappings of memory, and further numbers. Pure data.
// Thread-compatible.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "headrace/export.h"
#include "headrace/machine.h"
#include "headrace/result.h"
#include "headrace/statistics.h"

namespace HEADRACE_API headrace {

// A number (nodes, threads, bytes, nanoseconds) or a word ("read", "huge").
using ParameterValue = std::variant<std::uint64_t, std::string>;

// The origin of a row's number.
enum class Basis : std::uint8_t {
  measured,   // by Headrace, on the profile's machine
  modelled,   // computed by a model of a machine; never part of a profile
  published,  // third-party; Row::source names the source
  emulated,   // by Headrace, on a device in software: its speed means nothing
};
std::string_view to_string(Basis basis);

struct Row {
  std::string experiment;                                          // "latency"
  std::vector<std::pair<std::string, ParameterValue>> parameters;  // in the experiment's order
  std::string unit;                                                // of `value`: "ns", "B/s"
  std::optional<Summary> value;       // over `samples`; nothing: see `reason`
  std::vector<double> samples;        // one per mapping: the median of its repetitions
  std::vector<std::size_t> launches;  // number of samples per launch, in order; empty: one launch
  std::map<std::string, double> details;  // further numbers; names and units are the experiment's
  // Further words, which differ between launches: "kernel", the loop that ran.
  std::map<std::string, std::string> words = {};
  // Circumstances of the measurement:
  // - "noisy": during other activity on the machine
  // - "few": on fewer than three mappings
  // - "shrunk": in smaller buffers than the caches require, where memory is small or not free
  // - "cpu_limited": with fewer threads than CPUs, since a control group limits their time
  //   (cpu.max)
  // - "side_cached": in buffers that fit into a memory-side cache, whose speed the number then is
  // - "cache_doubted": in buffers of 512 MiB, since the machine's report of its caches is not
  //   plausible
  // - "partly_cached": in buffers that a cache holds in part, one larger than the machine reports
  // - "not_huge": requested in huge pages, but not entirely in them (detail "huge_part")
  // - "unsteady": the bandwidth beside it still changed by more than 5 % (detail "drift")
  // - "fitted": not quoted, but from a fit to published numbers (docs/design/published.md)
  //
  // Reasons of a row without a value:
  // - "absent": the machine lacks the hardware
  // - "left_out": no time left
  // - "stopped": stopped by the user
  std::vector<std::string> flags;
  Basis basis = Basis::measured;
  std::string reason;  // why there is no value
  // The source of a published number: author, place, and method if stated. Empty: measured by
  // Headrace on the profile's machine. A published number has no samples. Its spread is unknown:
  // the bounds of its summary are the number itself.
  std::string source;
  // The parameters, "cpu_node=1 memory_node=9", of similar points that were not measured: nodes of
  // the same kinds, at the same distance, on one socket or on two like these. "on=machine
  // placed=near": all CPUs of a node are all CPUs of the machine, or of its socket, which has no
  // other row by default.
  std::vector<std::string> stands_for = {};
  // The CPUs of its threads: "0-3,8". Empty: not chosen, or not by Headrace.
  std::string cpus = {};

  // Experiment and parameters on one line: "latency cpu_node=0 memory_node=1 ...". Equal points of
  // two profiles have equal keys.
  std::string key() const;
  // The parameter with this name; nullptr: none.
  const ParameterValue* parameter(std::string_view name) const;
  // The parameter as a number, nullptr if it is none; and as a word, "" if it is none.
  const std::uint64_t* number(std::string_view name) const;
  std::string_view word(std::string_view name) const;
  bool has_flag(std::string_view flag) const;
  void add_flag(std::string_view flag);  // at most once
};

struct Profile {
  Machine machine;
  std::vector<Row> rows;
  // How and when it was measured: date, version, seed, budget, left-out points, ...
  std::map<std::string, std::string> conditions;

  // True if some of its numbers are from third parties.
  bool published() const;

  // Loads a path or a preset, as Machine::load. A machine's JSON is a profile without rows.
  // Errors: absent; io; invalid, with the location.
  static Result<Profile> load(const std::string& path_or_preset);
  static Result<Profile> from_json(std::string_view text);
  std::string to_json() const;
  // Replaces the file atomically: a reader sees the old one or the new one. Errors: io; denied.
  Status save(const std::filesystem::path& path) const;
};

// One point of two profiles, or of several on each side.
struct Difference {
  enum class Outcome : std::uint8_t {
    same,     // within its own variation
    changed,  // beyond its own variation
    // The row changed by more than its own samples vary. But the rows of its experiment changed by
    // different amounts, which noise between two runs also causes. Not judged. Only with one run on
    // each side; compare several runs to decide.
    inconclusive,
    noisy,        // measured in a noisy moment, with one run on its side: not judged
    too_few,      // one of several runs on each side has it, as all of its experiment: not judged
    other_pages,  // not all in huge pages ("not_huge") on one side only: not judged
    only_old,     // measured on one side only
    only_new,
    unmeasured,  // on neither side
  };
  std::string key;
  std::string unit;
  // True for latencies of buffers within the machine's largest cache and for copies with
  // state=hot. Cache rows are judged separately from memory rows.
  bool in_caches = false;
  Outcome outcome = Outcome::unmeasured;
  std::optional<double> old_value;  // the geometric mean of several runs
  std::optional<double> new_value;
  std::optional<double> ratio;  // new / old
  double threshold = 0;         // for |ln(ratio)|; above it is a change
  std::size_t old_runs = 0;     // the number of runs in the values
  std::size_t new_runs = 0;
};

std::string_view to_string(Difference::Outcome outcome);

// All rows of one experiment together. A slowdown too small to show in a single row shows in the
// median of many.
struct Shift {
  std::string experiment;
  bool in_caches = false;  // covers the cache rows, or all other rows
  std::size_t rows = 0;
  double ratio = 1;  // median of new / old
  double threshold = 0;
  bool changed = false;
};

struct Comparison {
  std::vector<Difference> rows;  // in the order of the old profiles, then those only in new ones
  std::vector<Shift> shifts;
  bool changed() const;
  // True if no change is certain and more than a tenth of the comparable rows are inconclusive.
  bool inconclusive() const;
  // The number of judged rows, and of rows to judge, which have an old value. If few were judged,
  // "nothing changed" means little.
  std::size_t judged() const;
  std::size_t expected() const;
};

struct CompareOptions {
  // A smaller difference never counts as a change, however certain: 5 %.
  double least = 0.05;
  // A smaller shift of an experiment never counts where each side has one run: on shared hosts
  // everything drifts together by some per cent within minutes (docs/design/compare.md).
  double least_shift = 0.08;
};

// Merges several launches of one measurement into one profile. A point has all its samples, and its
// interval is over launches (statistics.h): memory stays in the same place within a process, so
// samples of one launch are alike. A launch in a noisy moment is left out if a quiet one exists.
// The machine's attributes come from all rows. Budget, noise checks and rounds are added up. Other
// conditions are those of the first launch; `launches` is their number.
// Errors: invalid: no launch, or launches of two machines.
Result<Profile> merge(std::span<const Profile> launches);

// Compares profiles by the test in docs/design/compare.md. With several runs on a side, a
// difference is compared with the variation between runs, and noisy rows are judged too. Best
// measured alternately: old, new, old, new. Requires: at least one profile on each side.
Comparison compare(std::span<const Profile> before, std::span<const Profile> after,
                   const CompareOptions& options = {});
Comparison compare(const Profile& before, const Profile& after, const CompareOptions& options = {});

}  // namespace HEADRACE_API headrace
