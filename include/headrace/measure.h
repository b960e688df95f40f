// SPDX-License-Identifier: Apache-2.0
// Experiments: short measurements described as data, each giving rows.
//
// `measure` runs points of the experiments as one session and gives a profile. The demo's few
// seconds, `headrace bench copy` and `headrace bench dsa` are such sessions with chosen points.
// A row that could not be measured says why instead of having a number. How it is measured, and why
// so: docs/design/measure.md. Thread-compatible; do not run two sessions at once, they would
// measure each other.
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

// Asked between points: true stops the experiment, which returns the rows it has.
using StopRequested = std::function<bool()>;
// Told after each point: points done, points in all.
using Progress = std::function<void(std::size_t done, std::size_t total)>;

struct ExperimentContext {
  StopRequested stop = [] { return false; };
  Progress progress = [](std::size_t, std::size_t) {};
};

// What values a parameter of an experiment has.
enum class ParameterKind : std::uint8_t {
  node,          // the number of a node; what was published may say "0-7"
  count,         // a number
  count_or_all,  // or the word "all"
  word,
  operation,  // "read" or "write"
  mix,        // of reads and writes: "read", "2:1", "nt_copy"
  any,        // a number or a word
};
std::string_view to_string(ParameterKind kind);

struct ParameterInfo {
  std::string name;
  ParameterKind kind = ParameterKind::word;
  bool required = true;  // false: profiles of others and of older versions may lack it
};

struct ExperimentInfo {
  std::string name;
  std::string description;                // one line
  std::vector<ParameterInfo> parameters;  // of its rows, in their order
  std::vector<std::string> details;       // that each of its rows with a number has
};
std::vector<ExperimentInfo> experiments();

// The value asked for of a parameter, or several of which any will do. A node by its number or its
// kind: "hbm". "": to have no such parameter.
using ParameterChoice = std::variant<std::uint64_t, std::string, std::vector<ParameterValue>>;
// Only points with these parameters: {{"mix", "read"}, {"threads", std::uint64_t{2}}}.
using ParameterChoices = std::map<std::string, ParameterChoice>;

// Chosen points of one experiment.
struct Selection {
  std::string experiment;  // by name
  ParameterChoices only = {};
};

struct MeasureOptions {
  std::vector<std::string> experiments;  // by name; empty: all
  ParameterChoices only = {};
  // In the place of these two, which must be empty: points of one experiment after the other.
  std::vector<Selection> selections = {};
  // On the disk that `storage` and `interference` measure; the machine must have been discovered
  // with it. 256 MiB must be free there, twice for buffered I/O; making the file is not in the
  // budget.
  std::filesystem::path directory = ".";
  // The time it may take, roughly, of which each experiment has a share; what
  // is most worth knowing is measured first, and rows say what was left out.
  // Nothing: all points, until each is certain. Pairs of nodes that are alike
  // are measured once (Row::stands_for): all of them where a node is named, and
  // without a budget those of the two matrices, idle latency and the bandwidth
  // of all threads reading or writing.
  std::optional<Nanoseconds> budget = std::chrono::seconds{60};
  // A point is measured again, on fresh memory, until the 95 % interval of its median is no wider
  // than this part of the median: at least 6 times, at most 18, which is asked after 6, 10 and 14;
  // with a budget 3 times at least. What others are compared with is measured whenever one of them
  // is.
  double width = 0.03;
  std::uint64_t seed = 1;  // the orders are drawn from it
  // Rows of an earlier session: those that were measured are kept and not measured again.
  std::vector<Row> known = {};
  // Each point is measured just so often, however wide its interval.
  std::optional<unsigned> rounds = {};
  // This is one of so many processes that measure the same one after the other, whose profiles are
  // merged. Without a budget and `rounds` each measures a point twice, and once what is wanted
  // last: the interval of a row is over launches.
  unsigned launches = 1;
  unsigned repetitions = 3;  // on one mapping of memory, of which the middle one counts
  // Whether the machine is watched for disturbances; it takes a second to begin, and some per cent
  // of the time.
  bool noise_checks = true;
};

// Measures this host. Stopped by the context, it returns what it has. invalid: no such experiment,
// no point with the parameters asked for, no round or repetition, too small a budget, or selections
// together with experiments or parameters. unsupported: `machine` is not this host. What latency,
// bandwidth, copy, storage and gpu give is put into the profile's machine as measured attributes
// and copy rates.
Result<Profile> measure(const Machine& machine, const MeasureOptions& options = {},
                        const ExperimentContext& context = {});

// A point as measure() would begin: `row` without a number, and with a reason
// where it would not be measured.
struct PlannedPoint {
  Row row;
  // Estimated for the mappings it has at least; what points share is counted at
  // the first of them. 0 where it is not measured.
  Nanoseconds time{0};
  // How the memory lies to the CPUs, or the target of a copy to its source:
  // "near" (no other CPUs are as near), "socket" (the same one), "far"; empty
  // where nothing lies anywhere.
  std::string distance = {};
};

// What measure() would do, without measuring anything. Of a machine that is not
// this host all CPUs may be used and all memory is free; its disk and devices,
// which only itself can be asked for, have a row that says so. invalid: as
// measure().
Result<std::vector<PlannedPoint>> plan_session(const Machine& machine,
                                               const MeasureOptions& options = {});

// A quick session for a first look: what cores read, write and copy in each
// memory and between kinds of memory, and what the disk behind `directory`
// does. It takes a few seconds for the disk and for each memory.
MeasureOptions quick_session(const Machine& machine, const std::filesystem::path& directory);

// STREAM's kernels (src/measure/experiments/stream.cpp) over memory of the caller, one repetition
// at a time: so that several processes can wait for each other before each (`headrace bench
// stream`).
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
// copy, scale, add, triad; and nt_copy ... nt_triad, which store around the caches.
std::vector<std::string> stream_kernels();
// What the arrays must hold before each repetition. Pages not touched before come near to the
// thread that will use them: thread i, on cpus[i]. invalid: no CPU, or unequal lengths.
Status stream_fill(const StreamArrays& arrays, const CpuSet& cpus);
// One repetition, and a check of what it left. Requires: stream_fill() of the same before. invalid:
// no such kernel, no CPU. io: the memory has other numbers than it must.
Result<StreamRun> stream_run(std::string_view kernel, const StreamArrays& arrays,
                             const CpuSet& cpus);

// What a layer of a network does to a machine, over memory of the caller: it reads so much, as its
// weights and what was kept of earlier tokens, and multiplies. It computes nothing; its time and
// the traffic it makes are real (`headrace bench layer`, `headrace bench kvcache`).
struct LayerWork {
  std::uint64_t from = 0;        // where in the memory it begins, in bytes; goes on at its start
  Bytes bytes;                   // to read; may be more than there is
  std::uint64_t operations = 0;  // on floats; a multiplication and an addition are two
};
struct LayerRun {
  Bytes bytes;  // read: what was asked for, less than 256 bytes of each thread left out
  std::uint64_t operations = 0;
  Nanoseconds time{0};   // from the first thread's start to the last one's end
  double cpu_share = 1;  // the part of it in which they had their CPUs, the least of them
};
// Random bytes, written by a thread on each CPU; the same for the same seed. invalid: no CPU.
Status fill_random(std::span<std::byte> memory, std::uint64_t seed, const CpuSet& cpus);
// One layer, shared out to a thread on each CPU. Each reads a tile of 256 KiB, does as many
// of the operations, reads the next. invalid: no CPU, or bytes to read from memory below 4 KiB or
// not beginning with a line.
Result<LayerRun> run_layer(std::span<const std::byte> memory, const LayerWork& work,
                           const CpuSet& cpus);

// The same on a GPU, from its own memory: kernels read so much, layer after layer, 64 bytes in
// flight for each thread. Nothing multiplies.
struct GpuLayerWork {
  NodeId gpu{};  // its memory
  Bytes memory;  // that the layers lie in, one behind the other; whole MiB
  Bytes bytes;   // of a layer; may be more than there is
  unsigned runs = 1;
};
struct GpuLayerRun {
  unsigned blocks = 0;   // of threads
  Nanoseconds time{0};   // on the GPU's own clock
  bool correct = false;  // the sum of what was read is that of what is there
};
struct GpuLayers {
  std::string device;
  bool emulated = false;  // a GPU made of software: its times are no measurement
  unsigned threads_per_block = 0;
  std::vector<GpuLayerRun> layers;  // in their order; fewer after a stop
  std::vector<GpuLayerRun> others;  // the same between them, by fewer and more blocks of threads
};
// Blocks. absent: no such GPU. exhausted: it has less memory. unsupported: it is a NUMA node whose
// memory it does not reach by the host's addresses. Errors of the driver.
Result<GpuLayers> run_layers_on_gpu(const Machine& machine, const GpuLayerWork& work,
                                    const ExperimentContext& context = {});

}  // namespace HEADRACE_API headrace
