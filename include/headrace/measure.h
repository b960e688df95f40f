// SPDX-License-Identifier: Apache-2.0
// Experiments: short measurements described as data. Each gives rows.
//
// `measure` runs points of the experiments as one session and returns a profile. `make demo`,
// `headrace bench copy` and `headrace bench dsa` are sessions with chosen points. A row without a
// number says why it was not measured. Method and reasons: docs/design/measure.md.
//
// Thread-compatible; run one session at a time, since two would disturb each other.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "headrace/export.h"
#include "headrace/machine.h"
#include "headrace/profile.h"
#include "headrace/result.h"
#include "headrace/statistics.h"
#include "headrace/units.h"

namespace HEADRACE_API headrace {

// Called between points. If it returns true, the experiment stops and returns its rows.
using StopRequested = std::function<bool()>;
// Called after each point with the number of points done and in all.
using Progress = std::function<void(std::size_t done, std::size_t total)>;

struct ExperimentContext {
  StopRequested stop = [] { return false; };
  Progress progress = [](std::size_t, std::size_t) {};
};

// The kind of value that a parameter of an experiment has.
enum class ParameterKind : std::uint8_t {
  node,          // the number of a node; published rows may say "0-7"
  count,         // a number
  count_or_all,  // a number or the word "all"
  word,
  operation,  // "read" or "write"
  mix,        // of reads and writes: "read", "2:1", "nt_copy"
  any,        // a number or a word
};
std::string_view to_string(ParameterKind kind);

struct ParameterInfo {
  std::string name;
  ParameterKind kind = ParameterKind::word;
  bool required = true;  // false: third-party profiles and those of older versions may lack it
};

struct ExperimentInfo {
  std::string name;
  std::string description;                // one line
  std::vector<ParameterInfo> parameters;  // of its rows, in order
  std::vector<std::string> details;       // in each of its rows with a number
};
std::vector<ExperimentInfo> experiments();

// The requested value of a parameter, or several values of which any matches. A node is given by
// its number or its kind ("hbm"). "" selects rows without this parameter.
using ParameterChoice = std::variant<std::uint64_t, std::string, std::vector<ParameterValue>>;
// Selects the points with these parameters: {{"mix", "read"}, {"threads", std::uint64_t{2}}}.
using ParameterChoices = std::map<std::string, ParameterChoice>;

// Selected points of one experiment.
struct Selection {
  std::string experiment;  // by name
  ParameterChoices only = {};
};

struct MeasureOptions {
  std::vector<std::string> experiments;  // by name; empty: all
  ParameterChoices only = {};
  // Alternative to `experiments` and `only`, which must then be empty: selected points of one
  // experiment after another.
  std::vector<Selection> selections = {};
  // A folder on the disk for `storage` and `interference`; the machine must be discovered with this
  // path. Needs 256 MiB free, twice that for buffered I/O. If creating the file takes more than a
  // quarter of the budget, it is given up, and rows say so.
  std::filesystem::path directory = ".";
  // The time of the session, all preparation included, of which each experiment gets a share. The
  // most important points are measured first; rows say which points were left out. One point is
  // measured however long it takes; the condition `over_budget` says so. Nothing: all points, each
  // until it is certain.
  //
  // Similar pairs of nodes are measured once (Row::stands_for), with two exceptions. All pairs are
  // measured where a node is named. Without a budget, all pairs of the two matrices are measured:
  // idle latency, and the bandwidth of all threads reading or writing.
  std::optional<Nanoseconds> budget = std::chrono::seconds{60};
  // Target width of the 95 % interval of a point's median, as a part of the median. A point is
  // measured 6 to 18 times, on fresh memory; the width is checked after 6, 10 and 14 times. With a
  // budget the minimum is 3 times. A baseline row is measured whenever a row that is compared with
  // it is.
  double width = 0.03;
  std::uint64_t seed = 1;  // seed of the measuring orders
  // Rows of an earlier session. Measured ones are kept and not measured again.
  std::vector<Row> known = {};
  // A fixed number of measurements per point, whatever the width of its interval.
  std::optional<unsigned> rounds = {};
  // The number of processes that run this session one after another, whose profiles are then
  // merged. Without a budget and `rounds`, each process measures a point twice, and the least
  // important points once: a row's interval is over launches.
  unsigned launches = 1;
  unsigned repetitions = 3;  // per mapping of memory; the middle one counts
  // Watches the machine for disturbances. Takes a second at the start and a few per cent of the
  // time.
  bool noise_checks = true;
};

// Measures this host. If the context stops it, returns the rows measured so far. Results of
// latency, bandwidth, copy, storage and gpu enter the profile's machine as measured attributes and
// copy rates.
// Errors:
// - invalid: no such experiment; no point with these parameters; no round or repetition; too small
//   a budget; selections together with experiments or parameters
// - unsupported: `machine` is not this host
Result<Profile> measure(const Machine& machine, const MeasureOptions& options = {},
                        const ExperimentContext& context = {});

// A point of a future session: `row` has no number, and a reason if it would not be measured.
struct PlannedPoint {
  Row row;
  // Estimated for its least number of mappings. Work shared by points is counted at the first of
  // them. 0: it is not measured.
  Nanoseconds time{0};
  // Distance from the CPUs to the memory, or from a copy's source to its target: "near" (no other
  // CPUs are as near), "socket" (the same one), "far"; empty: has no memory.
  std::string distance = {};
};

// The points that measure() would run, without measuring. For a machine other than this host, all
// CPUs are assumed usable and all memory free. Its disk and devices cannot be asked, so their row
// says that. Errors: as measure().
Result<std::vector<PlannedPoint>> plan_session(const Machine& machine,
                                               const MeasureOptions& options = {});

// A short session for a first look: reads, writes and copies by cores in each memory and between
// kinds of memory, and the disk of `directory`. Takes a few seconds per memory and for the disk.
MeasureOptions quick_session(const Machine& machine, const std::filesystem::path& directory);

// STREAM's kernels (src/measure/experiments/stream.cpp) over the caller's memory, one repetition
// per call, so that several processes can synchronise before each repetition (`headrace bench
// stream`).
struct StreamArrays {  // of equal length
  std::span<double> a;
  std::span<double> b;
  std::span<double> c;
};
struct StreamRun {
  Bytes bytes;           // as STREAM counts: without reads of overwritten lines
  Nanoseconds time{0};   // from the first thread's start to the last thread's end
  double cpu_share = 1;  // the share of it in which a thread had its CPU; the least of all threads
};
// copy, scale, add, triad; and nt_copy ... nt_triad, which store around the caches.
std::vector<std::string> stream_kernels();
// Sets the values that the arrays hold before each repetition. Untouched pages are placed near the
// thread that will use them: thread i, on cpus[i]. Errors: invalid: no CPU, or unequal lengths.
Status stream_fill(const StreamArrays& arrays, const CpuSet& cpus);
// Runs one repetition and checks its result. Requires: stream_fill() of the same arrays before.
// Errors: invalid: no such kernel, no CPU; io: the memory has wrong values.
Result<StreamRun> stream_run(std::string_view kernel, const StreamArrays& arrays,
                             const CpuSet& cpus);

}  // namespace HEADRACE_API headrace
