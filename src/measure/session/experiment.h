// SPDX-License-Identifier: Apache-2.0
// The parts of an experiment: its parameters and its points. A point is a row to fill, and the way
// to measure it.
//
// An experiment only lists points for a machine. The session (session.h) chooses the points that
// fit the budget, their order, their number of mappings and the summary of samples. Single-thread.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/machine.h"
#include "headrace/measure.h"
#include "headrace/profile.h"
#include "headrace/random.h"
#include "headrace/result.h"
#include "measure/instruments/buffer_pool.h"
#include "measure/instruments/counters/bus_counter.h"
#include "measure/instruments/measuring_file.h"
#include "measure/instruments/traffic/traffic_race.h"

namespace headrace::session {

using namespace instruments;

// Threshold of the flag "unsteady". The detail `drift` of a sample is the difference between its
// last two windows, relative to the larger; the median over samples counts.
constexpr double kSteady = 0.05;
// Threshold of the flag "partly_cached" for memory rows of these CPUs. The detail `after_walk` of a
// sample (latency.cpp) is 1 if buffers exceed the caches; the median over samples counts.
constexpr double kPassed = 0.95;

// One repetition.
struct Sample {
  double value = 0;                               // in the unit of the row
  std::map<std::string, double> details;          // as Row::details
  std::map<std::string, std::string> words = {};  // as Row::words
  // The least share of time in which one of its threads had a CPU. Well below 1: other work ran
  // there.
  double cpu_share = 1;
  // The share of huge pages in memory that shall have them and is not from the pool (MemoryKey).
  std::optional<double> huge_part = {};
};

// Adds the bytes counted on the bus as the detail `bus_counted`, and the name of the counter as a
// word. The loads moved `moved` bytes in the window at `rate`; the counted bytes are scaled the
// same way. Dividing them by the window's length would be wrong, because threads start and end
// inside it.
void add_counted(Sample& sample, const BusMeter& bus, std::optional<double> counted, double moved,
                 double rate);

// A point that is prepared on one mapping of memory.
class Probe {
 public:
  virtual ~Probe() = default;
  virtual Result<Sample> sample() = 0;
};

// Compares points with a reference of the same `group`. A round that measures one of them measures
// the reference too, next to it. Each row gets the detail `detail`: the median over rounds of its
// value divided by the reference's. The two are close in time, so this is steadier than the ratio
// of medians.
struct Comparable {
  std::string group;   // empty: not compared
  std::string detail;  // name of the ratio
  bool reference = false;
};

// Preparation that several points share, such as touched memory or a linked cycle. It is made once
// per round for all points with the same memory and the same name.
struct SharedSetup {
  std::string name;
  Nanoseconds cost{0};
};

struct Point {
  Row row;  // experiment, parameters, unit; with a reason: not measurable
  // 0: most wanted; a small budget leaves out high ranks.
  unsigned rank = 0;
  // Estimated time of one mapping: preparation and repetitions, without the setup.
  Nanoseconds cost{0};
  SharedSetup setup;
  // Names of the races of loops (traffic_race.h) whose winners it uses. A race runs once per
  // session, before its first point.
  std::vector<std::string> races;
  // File that it reads or writes; a session makes it before it measures, so that its time is in no
  // point's.
  std::shared_ptr<MeasuringFile> file = {};
  // Points with the same memory are measured one after the other, so that it is mapped once.
  MemoryKey memory;
  // Further nodes in use that no parameter of its row names.
  std::vector<NodeId> others;
  Comparable comparable;
  // A cell of a complete matrix: without a budget it is measured for every pair of nodes, even if
  // some are similar.
  bool of_matrix = false;
  std::function<Result<std::unique_ptr<Probe>>(BufferPool& buffers, Random& random)> prepare;
};

// A parameter of an experiment, named only here.
struct Parameter {
  std::string_view name;
  ParameterKind kind = ParameterKind::word;
  bool required = true;   // in every row that is drawn; other programs and older versions omit some
  bool of_teams = false;  // for rows of teams (teams.h), whose nodes are lists: "8-15"
};

// A row of the experiment with its parameters set, in their order. Requires: a value for each.
Row make_row(std::string_view experiment, std::span<const Parameter> parameters,
             std::vector<ParameterValue> values, std::string_view unit);

// The requested points. An experiment lists its usual points, and further ones if the request names
// a parameter that it would not vary by itself.
struct Scope {
  const Machine& machine;
  ParameterChoices only = {};
  std::filesystem::path directory = ".";  // on the disk to measure
  // A file in `directory`, past the page cache; made by the session, or at the first use.
  std::shared_ptr<MeasuringFile> file = std::make_shared<MeasuringFile>(machine, directory, true);

  // Counter of bus traffic; has none unless a session found one.
  std::shared_ptr<BusMeter> bus = std::make_shared<BusMeter>();
  // The counter for a point that uses memory of these nodes; empty unless it counts all of that
  // memory.
  std::shared_ptr<BusMeter> bus_of(const std::vector<NodeId>& nodes) const;

  // The fastest loops of traffic of this session.
  std::shared_ptr<Races> races = std::make_shared<Races>();

  bool here = true;    // false: another host, which cannot be asked
  bool budget = true;  // false: measure everything
  // Bytes that this process's memory cgroups leave on all nodes together; nullopt: no limit.
  std::optional<Bytes> memory_limit = {};
  // Number of concurrent threads that control groups allow; nullopt: no limit.
  std::optional<std::size_t> most_threads = {};
  std::vector<NodeId> forbidden = {};  // forbidden by this process's cpuset

  // Whether a value of the parameter is requested; false if only its absence is.
  bool asks(const std::string& parameter) const;
  // The requested numbers, or words, of a parameter; empty: not requested.
  std::vector<std::uint64_t> numbers(const std::string& parameter) const;
  std::vector<std::string> words(const std::string& parameter) const;
  // Whether the row has all requested parameters. A node may be requested by its kind, "hbm". If a
  // parameter of teams is requested, that applies to all nodes of a list, or to its only node. A
  // row without parameters gives the reason why an experiment has no points; it is wanted if the
  // request names only parameters of the experiment.
  bool wants(const Row& row, std::span<const Parameter> parameters) const;
  // The same for a row with only some parameters; missing ones are ignored.
  bool may_want(const Row& row, std::span<const Parameter> parameters) const;
};

struct Experiment {
  std::string_view name;
  std::string_view description;  // one line
  std::span<const Parameter> parameters;
  std::span<const std::string_view> details;  // of every row with a number
  std::vector<Point> (*points)(const Scope& scope);
  unsigned share = 1;       // of the budget, relative to other experiments
  bool alike_once = false;  // similar pairs of nodes may be measured once
};

// Jain's fairness index, (sum x)^2 / (n sum x^2): 1 if all rates are equal, 1/n if one has
// everything.
double fairness(const std::vector<double>& rates);

// Row::cpus of these CPUs.
std::string list_of_cpus(std::vector<unsigned> cpus);

// The nodes that a parameter names: 8, or "8-15"; empty: none.
CpuSet nodes_of(const ParameterValue& value);
// A node as a parameter.
inline ParameterValue id_of(const Node* node) { return std::uint64_t{raw(node->id)}; }
// The conditions of a race of loops (traffic_race.h): kind of memory, and distance from the CPUs.
std::string ground_of(const Machine& machine, const Node& cpu_node, const Node& memory_node);
// Whether no other CPUs are nearer to the node's memory than those of `cpu_node`.
bool is_near(const Machine& machine, const Node& cpu_node, const Node& memory_node);
// The nodes whose CPUs this process may use.
std::vector<const Node*> nodes_with_cpus(const Machine& machine);
// Whether the node has memory to allocate. Nodes of CPUs without DIMMs have a capacity of 0.
bool has_memory(const Node& node);
// All nodes with memory.
std::vector<const Node*> memory_nodes(const Machine& machine);
// For each kind of memory the node nearest to `node`; `node` itself comes first.
std::vector<const Node*> one_of_each_kind(const Machine& machine, const Node& node);

// Buffer size that exceeds the caches of these CPUs `times` times; at least `least`. In a virtual
// machine at least 512 MiB, since it may show a smaller cache than its host has. If the cache sizes
// are doubted (topology.h): 512 MiB per cache, and the flag "cache_doubted".
Bytes past_caches(Row& row, const Machine& machine, const CpuSet& cpus, std::uint64_t times,
                  Bytes least);
// Flags memory rows as "partly_cached" if their buffers do not exceed the caches, according to the
// detail `after_walk` of a row of the same CPUs (latency.cpp).
void flag_partly_cached(std::vector<Row>& rows);

// Time to map and touch bytes with one thread per CPU: about 1.5 GB/s each; more than eight add
// little.
Nanoseconds touching(Bytes bytes, std::size_t cpus);

// fitting(), with the flag "shrunk" if the buffers are smaller than the caches demand; then
// mark_side_cached().
Bytes fit(Row& row, const Node& node, Bytes wanted);
// Sets the flag "side_cached" if a memory-side cache of the node can hold a buffer of that size.
// Buffers do not grow beyond such a cache, since HBM in cache mode has gigabytes.
void mark_side_cached(Row& row, const Node& node, Bytes bytes);

// A point that cannot be measured, with the reason.
Point without(Row row, std::string reason);

}  // namespace headrace::session
