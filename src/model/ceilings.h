// SPDX-License-Identifier: Apache-2.0
// The constants of a machine that prediction needs: ceilings of bandwidth that flows of bytes
// share, idle latencies, and the properties of cores. They are the object "model" of a machine's
// JSON document (Machine::model), with the source of each:
//
//     "model": {
//       "ceilings": [
//         {"name": "mesh of socket {}, reads", "kind": "fabric", "counts": "reads",
//          "each": [[0, 8], [1, 9]], "bandwidth": [[0, 430e9]], "uncertainty": 0.03,
//          "basis": "measured", "source": "DRAMHiT, ...", "fitted_to": []},
//         ...],
//       "latencies": [{"from": [0], "to": [8], "read_ns": 138, "basis": ..., "source": ...}],
//       "cores": [{"frequency_hz": 2.7e9, "lines_in_flight": {"random load": 16}, ...}]}
//
// A ceiling is a limit for the sum of all traffic that crosses it. Ceilings of one machine usually
// form a tree: core, core cluster, fabric of a tile or socket, memory controllers, link. A flow
// crosses every ceiling with a path that matches it, in no order.
//
// `each` is short for one ceiling per list of nodes: the list becomes `to`, and `{}` in the name
// becomes its position. With "each_as": "from" it becomes `from`.
//
// Thread-compatible.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/text/enum_words.h"
#include "headrace/machine.h"
#include "headrace/result.h"

namespace headrace {

// How a constant of a model came about.
enum class ConstantBasis : std::uint8_t {
  measured,  // on this kind of machine, directly
  rated,     // by a data sheet, firmware or arithmetic on them: an upper bound
  fitted,    // chosen so that the model reproduces figures of `fitted_to`
  assumed,   // taken from another machine, or from experience
};
inline constexpr EnumWords<ConstantBasis::assumed> kConstantBases{
    "basis", {"measured", "rated", "fitted", "assumed"}};

// The justification of a constant.
struct Evidence {
  ConstantBasis basis = ConstantBasis::assumed;
  std::string source;                  // where the figure is from
  std::vector<std::string> fitted_to;  // groups of figures that must not count as predicted
};

// A function given by points with ascending x; linear between them, constant outside.
struct Curve {
  std::vector<std::pair<double, double>> points;

  // Requires: there are points.
  double at(double x) const;
};

// The part of a machine that a ceiling belongs to. `controller` and `device` see the traffic of the
// memory itself, which differs from the demand if the node has a memory-side cache. All other kinds
// see the demand of cores and engines.
enum class CeilingKind : std::uint8_t {
  core,        // one core, or the cores of one size
  cluster,     // cores with one connection to the fabric: a CCD
  fabric,      // the mesh or rings of a tile or socket
  controller,  // memory controllers and their DRAM
  link,        // between sockets, or to a device
  engine,      // a copying device
  device,      // an SSD, a memory expander
};
inline constexpr EnumWords<CeilingKind::device> kCeilingKinds{
    "ceiling kind", {"core", "cluster", "fabric", "controller", "link", "engine", "device"}};

enum class Counts : std::uint8_t { both, reads, writes };
inline constexpr EnumWords<Counts::writes> kCounts{"traffic", {"both", "reads", "writes"}};

// Accesses that cross a ceiling. Empty lists: all. A link in one direction has two paths: reads by
// one side, and writes by the other.
struct CrossingPath {
  std::vector<NodeId> from = {};       // the initiator: node of the CPUs, or home of the engine
  CpuSet cpus = {};                    // the initiating CPUs; engines then do not match
  std::vector<EngineId> engines = {};  // the initiating engines; CPUs then do not match
  std::vector<NodeId> to = {};         // the node that is accessed
  Counts counts = Counts::both;
};

struct Ceiling {
  std::string name;
  CeilingKind kind = CeilingKind::controller;
  std::vector<CrossingPath> paths;
  // For controller and device: counts the traffic of the memory-side cache of the nodes in `to`,
  // instead of that of the memory behind it.
  bool side_cache = false;
  // Bytes per second that a full load reaches, by the share of writes in its bytes (0 to 1).
  Curve bandwidth;
  // Latency in ns that the ceiling adds, by utilisation (0 to 1, of `bandwidth`). Empty: the
  // default shape (queue.h). Between points the function is linear.
  Curve queue = {};
  // A request counts as this many bytes in addition to its own: for a device with a limited number
  // of requests per second, bandwidth / that number.
  double request_bytes = 0;
  // Half the width of the interval of `bandwidth`, relative.
  double uncertainty = 0;
  Evidence evidence;
};

// Latency without load of accesses from initiators to nodes.
struct IdleLatency {
  std::vector<NodeId> from = {};  // empty: all
  std::vector<NodeId> to = {};    // empty: all
  bool side_cache = false;        // true: of a hit in the node's memory-side cache
  double read_ns = 0;
  std::optional<double> write_ns = {};  // nothing: as a read
  double uncertainty = 0;
  Evidence evidence;
};

// Cores of one kind. Keys are words: "random load", "sequential load", "nt store", "copy", "dsa".
struct CoreModel {
  std::vector<NodeId> nodes = {};  // those with these CPUs; empty: all
  std::optional<double> frequency_hz = {};
  std::optional<double> vector_bytes = {};
  std::map<std::string, double> lines_in_flight = {};  // per core, lines of 64 bytes
  std::map<std::string, double> bytes_per_cycle = {};  // per core, the cost of computing
  double uncertainty = 0;
  Evidence evidence;
};

struct MachineModel {
  std::vector<Ceiling> ceilings;
  std::vector<IdleLatency> latencies;
  std::vector<CoreModel> cores;
  // True: the machine has no model, and these are limits from its rated figures (bounds.h). Rates
  // are then upper bounds.
  bool bound = false;
};

// Reads Machine::model. A machine without one gets bounds. Latencies that the model leaves out come
// from the machine's access attributes.
// Errors: invalid, with the location: an unknown word, a node or engine that does not exist, a
// bandwidth that is not above 0, shares or utilisations that do not ascend.
Result<MachineModel> model_of(const Machine& machine);

// The core model of a node's CPUs; nullptr: none.
const CoreModel* cores_of(const MachineModel& model, NodeId node);

}  // namespace headrace
