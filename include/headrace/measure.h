// Experiments: short measurements described as data, each giving rows.
//
// `measure` runs the experiments of `experiments()` as one session and gives a profile. Beside it
// stand measure_briefly and bench_copy, for the demo and for `headrace bench copy`. A row that
// could not be measured says why instead of carrying a number. How it is measured, and why so:
// docs/design/measure.md. Thread-compatible; do not run two experiments at once, they would measure
// each other.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/backend.h"
#include "headrace/export.h"
#include "headrace/machine.h"
#include "headrace/profile.h"
#include "headrace/result.h"
#include "headrace/statistics.h"
#include "headrace/units.h"

namespace HEADRACE_API headrace {

// Asked between points: true stops the experiment, which returns the rows it has.
using StopRequested = std::function<bool()>;
// Told after each point: points done, points in all.
using Progress = std::function<void(std::size_t done, std::size_t total)>;

struct ExperimentContext {
  StopRequested stop = [] { return false; };
  Progress progress = [](std::size_t, std::size_t) {};
};

struct ExperimentInfo {
  std::string name;
  std::string description;  // one line
};
std::vector<ExperimentInfo> experiments();

struct MeasureOptions {
  std::vector<std::string> experiments;  // by name; empty: all
  // Only points with these parameters: {{"mix", "read"}, {"threads", 2}}. A node by its number or
  // its kind: {{"memory_node", "hbm"}}.
  std::map<std::string, ParameterValue> only = {};
  // On the disk that `storage` and `interference` measure; the machine must have been discovered
  // with it. 256 MiB must be free there, twice for buffered I/O; making the file is not in the
  // budget.
  std::filesystem::path directory = ".";
  // The time it may take, roughly; what is most worth knowing is measured first, and rows say what
  // was left out. Nothing: all points, until each is certain.
  std::optional<Nanoseconds> budget = std::chrono::seconds{60};
  // A point is measured again, on fresh memory, until the 95 % interval of its median is narrower
  // than this part of the median: at least 3 times, at most 9.
  double width = 0.03;
  std::uint64_t seed = 1;  // of orders
  // Of an earlier session: rows with a value are kept and not measured again.
  std::vector<Row> known = {};
};

// Measures this host. Stopped by the context, it returns what it has. invalid: no such experiment,
// no point with the parameters asked for, or too small a budget. unsupported: `machine` is not this
// host. What latency, bandwidth and copy give is put into the profile's machine as measured
// attributes and copy rates.
Result<Profile> measure(const Machine& machine, const MeasureOptions& options = {},
                        const ExperimentContext& context = {});

// Several launches of one measurement as one profile: all samples of a point together, since a
// process keeps the luck of where its memory lies; a launch in a noisy moment is left out where a
// quiet one is known. The machine learns from all rows. Budget, looks and rounds are added up; the
// other conditions are the first's, and their number is `launches`. invalid: none, or of two
// machines.
Result<Profile> merge(std::span<const Profile> launches);

struct CopyRow {
  std::string engine;  // "cpu": copy_bytes by default; "memcpy"; "avx2_nt", ...: one kernel
  Bytes bytes;
  unsigned threads = 1;
  std::string state;                               // "cold" | "hot"
  std::optional<BytesPerSecond> bytes_per_second;  // payload, median
  std::optional<double> spread;                    // MAD / median
  // Median over rounds of (this engine's rate / memcpy's in the same round).
  std::optional<double> ratio_to_memcpy;
  std::string reason;  // why there is no number
};

struct CopyBenchOptions {
  std::vector<Bytes> sizes;  // empty: 64 B ... 1 GiB by factors of four
  std::vector<unsigned> threads = {1};
  std::vector<std::string> engines;  // empty: "memcpy", "cpu" and every kernel this CPU can run
  bool cold = true;
  bool hot = true;
  unsigned rounds = 7;  // interleaved: each round measures every engine once
  Nanoseconds per_sample = std::chrono::milliseconds{20};
};

// Copy rates of one core or several by size, cold and hot, interleaved with glibc's memcpy.
// cold: walking over at least 4 x the last-level cache, so that neither side is cached; hot: the
// same two buffers again and again. Payload bytes, each counted once.
Result<std::vector<CopyRow>> bench_copy(const Machine& machine, const CopyBenchOptions& options,
                                        const ExperimentContext& context = {});

struct RateRow {
  std::string what;   // "memory read", "memory copy", "disk read", ...
  std::string where;  // "node 0, 2 threads", "vda, 1 MiB x 16"
  NodeId from;
  NodeId to;
  std::optional<EngineId> engine;
  std::optional<BytesPerSecond> bytes_per_second;  // payload, median
  std::optional<double> spread;                    // MAD / median
  std::string reason;
};

// A few seconds' look at the memory of each node and at the disk behind `directory` (which must
// have 256 MiB free): the bars of the demo's report, and copy rates for `machine` (added to it) so
// that place can decide by measurement. unsupported: `machine` is not this host.
Result<std::vector<RateRow>> measure_briefly(Machine& machine, const Backends& backends,
                                             const std::filesystem::path& directory,
                                             const ExperimentContext& context = {});

}  // namespace HEADRACE_API headrace
