// What the DSA experiments measure, as data. Pure. Thread-compatible.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "headrace/measure.h"
#include "measure/dsa_stand.h"

namespace headrace {

// One row to be: filled in but for its rate, and what to run for it.
struct DsaPoint {
  enum class Kind : std::uint8_t {
    devices,  // `threads` through `shape`
    core,     // a core of this host, copying row.bytes out of caches
    nodes,    // row.threads cores of this host, copying from row.from to row.to
    stream,   // `threads` beside STREAM on their node of this host
    nothing,  // row.reason says why not
  };
  Kind kind = Kind::devices;
  DsaRow row;
  std::vector<DsaThread> threads;
  DsaShape shape;
  bool first_alone = false;  // the rate is that of the first thread
};

// Of the copies that the point's row is about.
BytesPerSecond rate_of(const DsaPoint& point, const DsaTimes& times);

// `machine` has a dsa engine, the first of `engines`.
struct DsaScope {
  const Machine& machine;
  bool emulated = false;
  std::vector<Bytes> sizes;
  std::vector<EngineId> engines;  // its dsa engines, ascending

  NodeId home() const { return machine.find(engines.front())->home; }
};

struct DsaExperiment {
  std::string_view name;
  std::string_view description;
  std::vector<DsaPoint> (*points)(const DsaScope& scope);
};

std::span<const DsaExperiment> all_dsa_experiments();

// From where to where `route` and the cores of `cpu` copy: the thesis' pairs (node 0 to 8, 11, 12
// and 15) where the machine has these nodes with HBM; else from the first engine's node to every
// other memory.
std::vector<std::pair<NodeId, NodeId>> dsa_pairs(const DsaScope& scope);

}  // namespace headrace
