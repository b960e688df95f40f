// SPDX-License-Identifier: Apache-2.0
// A machine that is only described, in virtual time: memory that is addresses without bytes,
// threads that compute, and engines (backend.h). Production code runs on it as it is.
//
//     auto host = sim::Host::create(turns, machine);
//     auto column = (*host)->reserve(ddr, 4_GiB);         // an object of that node
//     const auto work = (*host)->add_work({.name = "scan", .lines_in_flight = 48});
//     (*host)->compute(cores, (*column)->bytes().first(1 << 20), *work);
//
// Threads do not compete for CPUs: run at most as many as the described machine has.
//
// For threads of the scheduler (sim/scheduler.h).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "headrace/machine.h"
#include "headrace/object.h"
#include "headrace/result.h"
#include "headrace/units.h"
#include "model/model.h"
#include "sim/flows.h"
#include "sim/scheduler.h"

namespace headrace::sim {

// The bytes of a cache line.
inline constexpr double kLineBytes = 64;

class Host;

// Addresses of a node. They may be written to: only pages that are written to take memory of this
// process. What engines copy is not written.
class ReservedMemory {
 public:
  ~ReservedMemory();
  ReservedMemory(const ReservedMemory&) = delete;
  ReservedMemory& operator=(const ReservedMemory&) = delete;

  const Object& object() const { return range_; }
  std::span<std::byte> bytes() const { return {range_.memory(), range_.size().value}; }

 private:
  friend class Host;
  ReservedMemory(Host& host, std::span<std::byte> bytes, NodeId node);
  Host& host_;
  const MemoryRange range_;
};

// The work of a core for each byte that it reads.
struct Work {
  std::string name;
  // Bytes per second of a core that waits for no memory. Nothing: as fast as memory.
  std::optional<double> bytes_per_second = {};
  double lines_in_flight = 0;  // of 64 bytes, per core; above 0
  // The share of reads that hit a memory-side cache. Nothing: all, or there is none.
  std::optional<Estimate> side_cache_hits = {};
};

class Host {
 public:
  // Borrows both. Errors: those of Solver::create().
  static Result<std::unique_ptr<Host>> create(Scheduler& turns, const Machine& machine);
  // Requires: its memory and backends are destroyed.
  ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  Scheduler& turns() { return turns_; }
  const Machine& machine() const { return machine_; }
  const Solver& solver() const { return solver_; }
  Flows& flows() { return flows_; }

  // Errors: absent: no such node; invalid: no bytes; exhausted: more than is left of the node's
  // capacity, or the system gives no addresses.
  Result<std::shared_ptr<ReservedMemory>> reserve(NodeId node, Bytes bytes);
  // The same as an object, for CacheOptions::allocate and StoreOptions::allocate. Memory of a GPU
  // that no CPU reaches has a device_address().
  Result<std::shared_ptr<const Object>> reserve_object(NodeId node, Bytes bytes);
  // Requires: reserved here.
  NodeId node_of(const std::byte* address) const;

  // Errors: invalid: lines_in_flight or bytes_per_second that are not above 0.
  Result<std::size_t> add_work(Work work);
  // The calling thread, on a core of node `cpus`, does such work on `bytes`, `times` as much.
  // Errors: those of Solver::solve() for this work.
  Status compute(NodeId cpus, std::span<const std::byte> bytes, std::size_t work, double times = 1);

 private:
  friend class ReservedMemory;
  Host(Scheduler& turns, const Machine& machine, Solver solver);
  void release(const std::byte* begin);

  Scheduler& turns_;
  const Machine& machine_;
  const Solver solver_;
  Flows flows_;
  struct Part {
    Bytes bytes;
    NodeId node{};
  };
  std::map<const std::byte*, Part> reserved_;  // by the first address
  std::map<NodeId, Bytes> taken_;
  std::vector<Work> works_;
  // Classes of flows by (CPUs, memory, work).
  std::map<std::tuple<NodeId, NodeId, std::size_t>, std::size_t> classes_;
};

}  // namespace headrace::sim
