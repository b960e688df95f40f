// What an experiment is made of: points, each a row to be filled and the way to fill it.
//
// An experiment only lists its points for a machine. The session (session.h) chooses which of them
// fit into the budget, in which order and how often they are measured, on which mappings of memory,
// and what the samples come down to. Single-thread.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/machine.h"
#include "headrace/profile.h"
#include "headrace/random.h"
#include "headrace/result.h"
#include "measure/arenas.h"
#include "measure/measuring_file.h"

namespace headrace {

// One repetition.
struct Sample {
  double value = 0;                       // in the unit of the row
  std::map<std::string, double> details;  // as Row::details
  // Of the time of its threads, the part in which they had a CPU: the least of them. Well below 1:
  // something else ran there.
  double cpu_share = 1;
};

// A point made ready on one mapping of memory.
class Probe {
 public:
  virtual ~Probe() = default;
  virtual Result<Sample> sample() = 0;
};

struct Point {
  Row row;  // experiment, parameters, unit; with a reason: there is nothing to measure
  // 0 is what one wants to know first; a small budget leaves the high ones out.
  unsigned rank = 0;
  // What one mapping of it takes, roughly: preparing and repetitions.
  Nanoseconds cost{0};
  // Points with the same memory are measured one after the other, so that it is mapped once.
  MemoryKey memory;
  std::function<Result<std::unique_ptr<Probe>>(Arenas& arenas, Random& random)> prepare;
};

// What points are asked for. An experiment lists the usual ones; where a parameter is named that it
// would not vary by itself, also the others.
struct Scope {
  const Machine& machine;
  std::map<std::string, ParameterValue> only = {};
  std::filesystem::path directory = ".";  // on the disk to be measured
  // There, past the page cache; made when the first point asks.
  std::shared_ptr<MeasuringFile> file = std::make_shared<MeasuringFile>(machine, directory, true);

  bool asks(const std::string& parameter) const { return only.contains(parameter); }
  // Whether the row has all parameters asked for. A node may be asked for by its kind, "hbm".
  bool wants(const Row& row) const;
};

struct Experiment {
  std::string_view name;
  std::string_view description;  // one line
  std::vector<Point> (*points)(const Scope& scope);
};

std::span<const Experiment> all_experiments();

std::vector<Point> latency_points(const Scope& scope);
std::vector<Point> bandwidth_points(const Scope& scope);
std::vector<Point> loaded_points(const Scope& scope);
std::vector<Point> stream_points(const Scope& scope);
std::vector<Point> copy_points(const Scope& scope);
std::vector<Point> migrate_points(const Scope& scope);
std::vector<Point> storage_points(const Scope& scope);
std::vector<Point> interference_points(const Scope& scope);
std::vector<Point> dsa_points(const Scope& scope);

// How evenly equals share: Jain's index, (sum x)^2 / (n sum x^2), 1 if all have the same, 1/n if
// one has all.
double fairness(const std::vector<double>& rates);

// The nodes whose CPUs this process may use.
std::vector<const Node*> nodes_with_cpus(const Machine& machine);
// The nodes with memory of their own to allocate.
std::vector<const Node*> memory_nodes(const Machine& machine);
// Of each kind of memory the node nearest to `node`, itself first.
std::vector<const Node*> one_of_each_kind(const Machine& machine, const Node& node);

// fitting(), and the flag "shrunk" for a row whose buffers are smaller than the caches ask for.
Bytes fit(Row& row, const Node& node, Bytes wanted);

// A point that only says why it cannot be measured.
Point without(Row row, std::string reason);

}  // namespace headrace
