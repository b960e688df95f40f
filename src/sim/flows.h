// SPDX-License-Identifier: Apache-2.0
// Flows of bytes in virtual time: each has so many bytes to go, and all of them share the machine's
// ceilings as the solver says (model/solver.h). Whenever a flow begins or ends, all rates change.
//
//     Flows flows(turns, solver);
//     const std::size_t scan = flows.add_class({.initiator = node, .accesses = {{node}}, ...});
//     flows.run(scan, 1_MiB);  // the calling thread computes; returns when the bytes are done
//
// Equal flows are members of one class. Its progress is counted once for all members; a member ends
// when the progress reaches the mark at which it began plus its bytes.
//
// Cost: an event takes time in proportion to the number of classes, and one solution of the solver.
// Solutions are remembered by the numbers of members.
//
// For threads of the scheduler (sim/scheduler.h).
#pragma once

#include <cstdint>
#include <optional>
#include <queue>
#include <string>
#include <unordered_map>
#include <vector>

#include "headrace/units.h"
#include "model/model.h"
#include "sim/scheduler.h"

namespace headrace::sim {

// Work of a flow that nobody waits for.
class Job {
 public:
  virtual ~Job() = default;
  // The bytes are done. Called without a thread: may call Scheduler::ready() and notify(), and
  // begin other jobs.
  virtual void done() = 0;
};

// How long a class was limited by what.
struct FlowUse {
  std::string flow;  // its name
  std::optional<EngineId> engine = {};
  double bytes = 0;  // of progress
  struct Limited {
    std::string by;      // as Solver::text_of()
    double seconds = 0;  // of all members
  };
  std::vector<Limited> limited;  // the longest first
};

struct CeilingUse {
  std::string ceiling;
  double bytes = 0;
  double seconds = 0;  // with traffic
  double full = 0;     // of them, at 95 % of the bandwidth or more
};

class Flows final : public EventSource {
 public:
  // Borrows both.
  Flows(Scheduler& turns, const Solver& solver);
  ~Flows() override;

  // A class of flows that do what `flow` says; Flow::threads is ignored. `shared`: all members
  // together are one thread, for an engine with several copies in progress.
  // Errors: those of Solver::solve() for one such flow alone.
  Result<std::size_t> add_class(Flow flow, bool shared = false);

  // Returns when a new member of the class has done its bytes.
  void run(std::size_t number, Bytes bytes);
  // Begins a new member. `job` lives until done().
  void begin(std::size_t number, Bytes bytes, Job& job);

  Nanoseconds next() override;
  void advance(Nanoseconds now) override;

  std::vector<FlowUse> flow_use() const;
  std::vector<CeilingUse> ceiling_use() const;
  // Solutions computed, and asked for.
  std::uint64_t solved() const { return solved_; }
  std::uint64_t asked() const { return asked_; }

 private:
  struct Mark {
    double progress = 0;
    std::uint64_t order = 0;
    Job* job = nullptr;
    friend bool operator>(const Mark& a, const Mark& b) {
      return a.progress != b.progress ? a.progress > b.progress : a.order > b.order;
    }
  };
  struct Class {
    Flow flow;
    bool shared = false;
    double progress = 0;  // bytes of a member since the start
    double bytes = 0;     // of all members that have ended
    std::priority_queue<Mark, std::vector<Mark>, std::greater<>> members;
    std::vector<double> limited;  // seconds by limit: the ceilings, lines in flight, cap
  };
  // The rates for certain numbers of members.
  struct Rates {
    struct OfClass {
      std::uint32_t number = 0;
      double rate = 0;  // bytes per ns of one member
      std::uint32_t limit = 0;
    };
    std::vector<OfClass> classes;
    struct OfCeiling {
      std::uint32_t number = 0;
      double load = 0;  // bytes per ns
      bool full = false;
    };
    std::vector<OfCeiling> ceilings;
  };
  struct Hash {
    std::size_t operator()(const std::vector<std::uint32_t>& key) const;
  };

  void resolve();
  Rates solve() const;

  Scheduler& turns_;
  const Solver& solver_;
  std::vector<Class> classes_;
  std::vector<CeilingUse> ceilings_;
  std::unordered_map<std::vector<std::uint32_t>, Rates, Hash> memo_;
  std::vector<std::uint32_t> key_;
  const Rates* rates_ = nullptr;  // null: a flow has begun or ended since
  Rates overflow_;                // when the memo is full
  Nanoseconds time_{0};           // of all progress
  std::uint64_t order_ = 0;
  std::uint64_t solved_ = 0;
  std::uint64_t asked_ = 0;
};

}  // namespace headrace::sim
