// Experiments: short measurements described as data, each giving rows.
//
// `measure` runs the experiments of `experiments()` as one session and gives a profile. Beside it
// stand measure_briefly, bench_copy and bench_dsa, for the demo and for `headrace bench`; what
// bench_dsa measures of devices is an experiment of `measure` too, what it models is not. A row
// that could not be measured says why instead of carrying a number. How it is measured, and why so:
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
#include <string_view>
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

// One point of bench_dsa(): a rate, or the reason why not.
struct DsaRow {
  std::string experiment;
  // How copies are handed over: "single", a descriptor and a wait for each; "batch", at_once by one
  // batch descriptor; "vectored", at_once by one write(). "cores": copied by cores. "stream": read
  // and written by cores.
  std::string method;
  Bytes bytes;                 // of one copy; in `route` of all parts together
  unsigned threads = 1;        // that hand over, or of cores
  unsigned at_once = 1;        // copies handed over together
  unsigned window = 1;         // the most copies of a thread under way
  unsigned copies = 1;         // by all threads together
  std::string route;           // "one", "brute_force", "smart"; where cores copy "cores"
  std::optional<NodeId> from;  // nothing: a node of no importance
  std::optional<NodeId> to;
  std::vector<std::string> engines;       // that copy
  std::vector<std::string> free_engines;  // devices left for others
  std::string queue;                      // "shared", "dedicated"; cores: empty
  std::string portal;                     // the way into it: "ENQCMD", "MOVDIR64B", "write()"
  std::optional<unsigned> group_engines;  // that serve it; nothing: as it is configured
  std::string beside;                     // what else ran; empty: nothing
  // Payload of all copies by the time from the first's start to the last's end, median; in
  // `interference` that of the first thread alone.
  std::optional<BytesPerSecond> bytes_per_second;
  std::optional<double> spread;  // MAD / median; nothing: there is none, or one time only
  std::string basis;             // "hardware": measured; "modelled"; a row without a rate: either
  std::string machine;           // whose devices or cores these are
  std::string reason;            // why there is no rate
};

struct DsaBenchOptions {
  std::vector<std::string> experiments;  // by name; empty: all of dsa_experiments()
  // Model the devices of the machine instead of using those of this host.
  bool emulated = false;
  std::vector<Bytes> sizes;  // of submission and cpu; empty: 1 KiB ... 1 GiB
  unsigned rounds = 3;       // of each point on hardware; a model gives the same every time
};

// What bench_dsa() can run, in its order: submission, threads, route, cpu, queue, interference.
std::vector<ExperimentInfo> dsa_experiments();

// The experiments of C. Fuerst, "Data Movement in Heterogeneous Memories with Intel Data Streaming
// Accelerator" (TU Dresden 2024), chapter 3, and what it left open. On hardware `machine` is this
// host; emulated it may be any with dsa engines, and its times are those of a model
// (docs/design/dsa-rates.md), the same in every run; only what `cpu` measures of this host's cores
// is not. invalid: no such experiment, a size of 0 or more than 2 GiB. unsupported: this host has
// no DSA device that this user may use, or, emulated, `machine` has no dsa engine.
Result<std::vector<DsaRow>> bench_dsa(const Machine& machine, const DsaBenchOptions& options,
                                      const ExperimentContext& context = {});

// STREAM's kernels (src/measure/stream.cpp) over memory of the caller, one repetition at a time: so
// that several processes can wait for each other before each (`headrace bench stream`).
struct StreamArrays {  // of equal length
  std::span<double> a;
  std::span<double> b;
  std::span<double> c;
};
struct StreamRun {
  Bytes bytes;           // as STREAM counts: stores not fetched first
  Nanoseconds time{0};   // from the first thread's start to the last one's end
  double cpu_share = 1;  // the part of it in which they had their CPUs, the least of them
};
// copy, scale, add, triad
std::vector<std::string> stream_kernels();
// What the arrays must hold before each repetition. Pages not touched before come near to the
// thread that will use them: thread i, on cpus[i]. invalid: no CPU, or unequal lengths.
Status stream_fill(const StreamArrays& arrays, const CpuSet& cpus);
// One repetition, and a look at what it left. Requires: stream_fill() of the same before. invalid:
// no such kernel, no CPU. io: the memory has other numbers than it must.
Result<StreamRun> stream_run(std::string_view kernel, const StreamArrays& arrays,
                             const CpuSet& cpus);

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
