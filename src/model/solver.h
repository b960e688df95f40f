// SPDX-License-Identifier: Apache-2.0
// Rates of flows that share a machine's ceilings: one fixed point of rates and latencies.
//
// A flow class is a number of equal threads (or an engine) that repeat accesses. A thread keeps at
// most `in_flight` bytes in flight, so by Little's law
//
//     rate = min(cap, in_flight / sum over accesses of bytes * latency)
//     latency of an access = idle latency + sum of queue delays of the ceilings it crosses
//
// The queue delay q of a ceiling satisfies load = bandwidth * u(q), where u, the utilisation,
// grows with q to just above 1 (queue.h). Flows that wait at a full ceiling therefore share it in
// proportion to their bytes in flight, as a controller that serves first come, first served. A flow
// that needs little gets it, at a higher latency. The delays are the maximum of a concave function,
// so the solution is unique as far as bandwidths do not depend on the share of writes.
//
// A flow without in-flight limit is an open demand: it wants `cap` whatever the latency.
//
// Solver is immutable: thread-safe. The same input gives the same output, bit for bit.
// Cost: about 150 us of CPU time for 30 flows and 40 ceilings (solver_bench.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/text/enum_words.h"
#include "headrace/machine.h"
#include "headrace/result.h"
#include "model/ceilings.h"
#include "model/side_cache.h"

namespace headrace {

enum class AccessKind : std::uint8_t {
  read,   // a load, or an engine's read
  write,  // a non-temporal store, or an engine's write: whole lines
  store,  // an ordinary store: reads the line first (for ownership), writes it back later
};
inline constexpr EnumWords<AccessKind::store> kAccessKinds{"access", {"read", "write", "store"}};

// Part of what a flow does for a byte of progress.
struct FlowAccess {
  NodeId node;
  AccessKind kind = AccessKind::read;
  double bytes = 1;  // per byte of progress
  // Idle latency in ns. Nothing: that of the machine for this initiator and node. A write-back of
  // a store takes no time of the thread, but queues.
  std::optional<double> latency_ns = {};
  // Size of one request, for ceilings that count requests. Nothing: they add nothing.
  std::optional<double> request_bytes = {};
  // For a node with a memory-side cache: the share of accesses that hit (side_cache_hits()), and
  // the share of evicted lines that are dirty. Nothing: all hit; as many as this flow writes of its
  // bytes on the node.
  std::optional<Estimate> side_cache_hits = {};
  std::optional<double> side_cache_dirty = {};
};

struct Flow {
  std::string name;    // for messages and results
  double threads = 1;  // above 0; may be a fraction
  NodeId initiator;    // the node of the CPUs; ignored for an engine
  CpuSet cpus = {};    // CPUs of the threads, evenly; empty: all of the initiator
  std::optional<EngineId> engine = {};
  std::vector<FlowAccess> accesses;
  // Per thread. Nothing: open demand, which needs a cap.
  std::optional<double> in_flight_bytes = {};
  double in_flight_uncertainty = 0;  // relative
  // Bytes of progress per second and thread: the cost of computing, an engine's peak.
  std::optional<double> cap_bytes_per_second = {};
};

// The reason why a flow is not faster.
struct Limit {
  enum class Kind : std::uint8_t { ceiling, lines_in_flight, cap };
  Kind kind = Kind::lines_in_flight;
  std::size_t ceiling = 0;  // index in MachineModel::ceilings, for Kind::ceiling
  // How much 1 % more of it would add to the rate, in percent: 1 for the only limit.
  double elasticity = 0;
};

struct FlowResult {
  double rate = 0;                        // bytes of progress per second, of all threads
  double latency_ns = 0;                  // mean over the bytes that threads wait for
  std::vector<double> access_latency_ns;  // idle and queues, by access
  Limit limit;
  double rate_low = 0;  // the interval; equal to `rate` after solve()
  double rate_high = 0;
};

struct CeilingLoad {
  double load = 0;       // bytes per second across it
  double bandwidth = 0;  // at the load's share of writes
  double write_share = 0;
  double queue_ns = 0;  // added latency
};

struct Solution {
  std::vector<FlowResult> flows;      // as the input
  std::vector<CeilingLoad> ceilings;  // as MachineModel::ceilings
  unsigned iterations = 0;
};

class FlowSet;

class Solver {
 public:
  // Reads the machine's model, or derives bounds if it has none.
  // Errors: those of model_of().
  static Result<Solver> create(const Machine& machine);
  static Result<Solver> create(const Machine& machine, MachineModel model);

  // Errors: invalid: a node or engine does not exist; a number is not above 0 or not finite; a flow
  // without accesses; an open demand without cap; exhausted: no convergence within the bound of
  // iterations.
  Result<Solution> solve(std::span<const Flow> flows) const;
  // Three solutions: all ceilings, latencies and lines in flight as given, and at their low and
  // high ends. The interval of a rate spans the three.
  Result<Solution> solve_with_interval(std::span<const Flow> flows) const;

  // The same flows, to be solved for several numbers of threads. Flow::threads is ignored.
  // Errors: invalid, as solve().
  Result<FlowSet> prepare(std::span<const Flow> flows) const;

  const MachineModel& model() const;
  // "mesh of socket 0, reads", "core: lines in flight", "core: compute", "engine: peak".
  std::string text_of(const Limit& limit, const Flow& flow) const;
  // Number of the group of CPUs that no ceiling tells apart from this one. Threads on CPUs of one
  // group and node may be one flow.
  unsigned cpu_group(unsigned cpu) const;
  // The idle latency in ns that accesses without their own get, and its justification.
  Result<IdleLatency> idle_latency(NodeId initiator, NodeId node) const;

 private:
  friend class FlowSet;
  struct Parts;
  explicit Solver(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}
  std::shared_ptr<const Parts> parts_;
};

// Flows that a simulation solves again and again, while only their numbers of threads change. Each
// solution begins at the last one. Rates agree with those of Solver::solve() within 1e-7, unless
// bandwidths that depend on the share of writes allow several solutions. Thread-compatible.
// Cost: about 55 us of CPU time for 30 flows and 40 ceilings, with all limits.
class FlowSet {
 public:
  ~FlowSet();
  FlowSet(FlowSet&&) noexcept;
  FlowSet& operator=(FlowSet&&) noexcept;

  // Takes one number of threads for each flow. A flow with 0 threads is left out.
  // Errors: exhausted, as Solver::solve().
  Status solve(std::span<const double> threads);

  // Values of the last solution. The rate is that of all threads of the flow.
  double rate(std::size_t flow) const;
  Limit limit(std::size_t flow);
  CeilingLoad ceiling(std::size_t number) const;

 private:
  friend class Solver;
  struct Parts;
  explicit FlowSet(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace headrace
