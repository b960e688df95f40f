// SPDX-License-Identifier: Apache-2.0
// What an experiment is made of: parameters, and points, each a row to be filled and the way to
// fill it.
//
// An experiment only lists its points for a machine. The session (session.h) chooses which of them
// fit into the budget, in which order and how often they are measured, on which mappings of memory,
// and what the samples come down to. Single-thread.
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

// The detail `drift` of a sample is by how much the last two windows differed in what they saw, as
// a part of the larger. A row whose median is above this is "unsteady".
constexpr double kSteady = 0.05;
// The detail `after_walk` of a sample (latency.cpp) is 1 where buffers pass the caches. Rows of
// memory of these CPUs are "partly_cached" if its median is below this.
constexpr double kPassed = 0.95;

// One repetition.
struct Sample {
  double value = 0;                               // in the unit of the row
  std::map<std::string, double> details;          // as Row::details
  std::map<std::string, std::string> words = {};  // as Row::words
  // The part of the time of its threads in which they had a CPU: the least of them. Well below 1:
  // something else ran there.
  double cpu_share = 1;
  // The part in huge pages of memory that is to be in such and that the pool (MemoryKey) does not
  // know.
  std::optional<double> huge_part = {};
};

// Adds what was counted on the bus, at the same bytes for each that the loads moved, as the detail
// `bus_counted`, and by whom, as a word. `moved` bytes at a rate of `rate` were moved in the
// window. Counted bytes over time would be of a longer time: threads begin and end in it.
void add_counted(Sample& sample, const BusMeter& bus, std::optional<double> counted, double moved,
                 double rate);

// A point made ready on one mapping of memory.
class Probe {
 public:
  virtual ~Probe() = default;
  virtual Result<Sample> sample() = 0;
};

// Points of one `group` are measured one after the other in every round, the reference in each
// round that one of them is measured in. Each row gets the median over rounds of (its value / that
// of the group's reference in the same round) as a detail: the two are of neighbouring moments, so
// that the ratio is steadier than the ratio of medians.
struct Comparable {
  std::string group;   // empty: not compared
  std::string detail;  // the name of the ratio
  bool reference = false;
};

// What must be there before a point is measured and stays for those after it: memory touched, a
// cycle linked. In a round it is made once for all points of the same memory that name it alike.
struct SharedSetup {
  std::string name;
  Nanoseconds cost{0};
};

struct Point {
  Row row;  // experiment, parameters, unit; with a reason: there is nothing to measure
  // 0 is what one wants to know first; a small budget leaves the high ones out.
  unsigned rank = 0;
  // What one mapping of it takes, roughly: preparing and repetitions; the setup comes on top.
  Nanoseconds cost{0};
  SharedSetup setup;
  // Races of loops (traffic_race.h), by name, whose winners it goes by: each is run once a session,
  // before the first point that does.
  std::vector<std::string> races;
  // File that it reads or writes; a session makes it before it measures, so that its time is in no
  // point's.
  std::shared_ptr<MeasuringFile> file = {};
  // Points with the same memory are measured one after the other, so that it is mapped once.
  MemoryKey memory;
  // What it uses besides, where its row names it by no parameter of a node.
  std::vector<NodeId> others;
  Comparable comparable;
  // A cell of a matrix that is wanted whole: without a budget it is measured
  // for every pair of nodes, though some are alike.
  bool of_matrix = false;
  std::function<Result<std::unique_ptr<Probe>>(BufferPool& buffers, Random& random)> prepare;
};

// A parameter of an experiment, named here and nowhere else.
struct Parameter {
  std::string_view name;
  ParameterKind kind = ParameterKind::word;
  bool required = true;   // of a row that is drawn; other programs and older versions left some out
  bool of_teams = false;  // rows of teams have it (teams.h), whose nodes are lists: "8-15"
};

// A row of the experiment with its parameters set, in their order. Requires: a value for each.
Row make_row(std::string_view experiment, std::span<const Parameter> parameters,
             std::vector<ParameterValue> values, std::string_view unit);

// What points are asked for. An experiment lists the usual ones; where a parameter is named that it
// would not vary by itself, also the others.
struct Scope {
  const Machine& machine;
  ParameterChoices only = {};
  std::filesystem::path directory = ".";  // on the disk to be measured
  // There, past the page cache; made by the session, or when the first point asks.
  std::shared_ptr<MeasuringFile> file = std::make_shared<MeasuringFile>(machine, directory, true);

  // Where the machine counts what crosses its bus; without a counter unless a session found one.
  std::shared_ptr<BusMeter> bus = std::make_shared<BusMeter>();
  // What counts for a point that uses memory of these nodes; one without a counter where not all of
  // it is counted.
  std::shared_ptr<BusMeter> bus_of(const std::vector<NodeId>& nodes) const;

  // Which loops of traffic were the fastest in this session.
  std::shared_ptr<Races> races = std::make_shared<Races>();

  bool here = true;    // false: the machine is another host, of which nothing can be asked
  bool budget = true;  // false: all there is
  // What the memory cgroups of this process leave all nodes together; nothing: no limit.
  std::optional<Bytes> memory_limit = {};
  // What control groups leave it, in threads at once; nothing: no limit.
  std::optional<std::size_t> most_threads = {};
  std::vector<NodeId> forbidden = {};  // nodes whose memory the cpuset of this process forbids

  // Whether for a value; not where all that is asked for is to have none.
  bool asks(const std::string& parameter) const;
  // The numbers asked for of a parameter, and the words; empty: it is not asked for.
  std::vector<std::uint64_t> numbers(const std::string& parameter) const;
  std::vector<std::string> words(const std::string& parameter) const;
  // Whether the row has all parameters asked for. A node may be asked for by its kind, "hbm"; where
  // a parameter of teams is asked for, that holds for all of a list, or for its only one. A row
  // without parameters says why there is nothing of the experiment: it is wanted where these are
  // parameters of the experiment at all.
  bool wants(const Row& row, std::span<const Parameter> parameters) const;
  // The same for a row with only some of the parameters. Those that it has not are not looked at.
  bool may_want(const Row& row, std::span<const Parameter> parameters) const;
};

struct Experiment {
  std::string_view name;
  std::string_view description;  // one line
  std::span<const Parameter> parameters;
  std::span<const std::string_view> details;  // that every row with a number has
  std::vector<Point> (*points)(const Scope& scope);
  unsigned share = 1;       // of a budget, relative to those of others
  bool alike_once = false;  // pairs of nodes that are alike may be measured once
};

// How evenly equals share: Jain's index, (sum x)^2 / (n sum x^2), 1 if all have the same, 1/n if
// one has all.
double fairness(const std::vector<double>& rates);

// Row::cpus of these.
std::string list_of_cpus(std::vector<unsigned> cpus);

// A node as a parameter.
inline ParameterValue id_of(const Node* node) { return std::uint64_t{raw(node->id)}; }
// Where loops of traffic race (traffic_race.h): the kind of memory, and how far it is from these
// CPUs.
std::string ground_of(const Machine& machine, const Node& cpu_node, const Node& memory_node);
// Whether the node's memory has no nearer CPUs than those of `cpu_node`.
bool is_near(const Machine& machine, const Node& cpu_node, const Node& memory_node);
// The nodes whose CPUs this process may use.
std::vector<const Node*> nodes_with_cpus(const Machine& machine);
// Whether there is memory on it to allocate. Nodes of CPUs without DIMMs have a capacity of 0.
bool has_memory(const Node& node);
// The nodes that have.
std::vector<const Node*> memory_nodes(const Machine& machine);
// By kind of memory the node nearest to `node`, itself first.
std::vector<const Node*> one_of_each_kind(const Machine& machine, const Node& node);

// Bytes of a buffer that passes the caches of these CPUs so many times; at least `least`, and in a
// virtual machine 512 MiB, since it may show a smaller cache than its host has. Where the caches
// are not believed (topology.h): 512 MiB for each of them, and the flag "cache_doubted".
Bytes past_caches(Row& row, const Machine& machine, const CpuSet& cpus, std::uint64_t times,
                  Bytes least);
// Flags rows of memory "partly_cached" whose CPUs' caches their buffers do not pass, by the detail
// `after_walk` of a row of the same CPUs (latency.cpp).
void flag_partly_cached(std::vector<Row>& rows);

// What it takes to map so many bytes by a thread on each of so many CPUs: some 1.5 GB/s each, of
// which more than eight gain little.
Nanoseconds touching(Bytes bytes, std::size_t cpus);

// fitting(), and the flag "shrunk" for a row whose buffers are smaller than the caches ask for; and
// the one below.
Bytes fit(Row& row, const Node& node, Bytes wanted);
// Sets the flag "side_cached" where a memory-side cache of the node can hold a buffer of that size.
// No buffer grows past one, since HBM in cache mode has gigabytes.
void mark_side_cached(Row& row, const Node& node, Bytes bytes);

// A point that only says why it cannot be measured: the machine has not what it takes.
Point without(Row row, std::string reason);

}  // namespace headrace::session
