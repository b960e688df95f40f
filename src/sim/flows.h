// SPDX-License-Identifier: Apache-2.0
// Flows of bytes in virtual time. All flows share the machine's ceilings as the solver says
// (model/solver.h). Whenever a flow begins or ends, all rates change.
//
//     Flows flows(turns, solver);  // of this run
//     const std::size_t scan = flows.add_class({.initiator = node, .accesses = {{node}}, ...});
//     flows.run(scan, 1_MiB);  // the calling thread computes; returns when the bytes are done
//
// Equal flows are members of one class. Its progress is counted once for all members; a member ends
// when the progress reaches the mark at which it began plus its bytes.
//
// Classes that share no ceiling, even through others, are solved apart, each time from the last
// solution on. A solution is used on while (changed members / members) * its age is at
// most 0.5 us. The time of a query on 96 threads, q6 prefetched on xeon-max, differed by 1 % from
// that with a solution at each change; without copies by less than 0.1 %.
//
// For threads of the scheduler (sim/scheduler.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <queue>
#include <string>
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
  // Solutions computed.
  std::uint64_t solved() const { return solved_; }

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
    double progress = 0;  // bytes of a member since the class was empty
    double bytes = 0;     // of all members
    double rate = 0;      // bytes per ns of a member
    std::uint32_t limit = 0;
    std::priority_queue<Mark, std::vector<Mark>, std::greater<>> members = {};
    std::vector<double> limited = {};  // seconds by limit: the ceilings, lines in flight, cap
  };
  // The solution for certain numbers of members.
  struct Rates {
    struct OfClass {
      double rate = 0;  // bytes per ns: of a member, or of a shared class
      std::uint32_t limit = 0;
    };
    std::vector<OfClass> classes;  // as Part::classes
    struct OfCeiling {
      std::uint32_t number = 0;
      double load = 0;  // bytes per ns
      bool full = false;
    };
    std::vector<OfCeiling> ceilings;
  };
  using Key = std::vector<std::uint32_t>;
  // Classes that share ceilings.
  struct Part {
    std::vector<std::uint32_t> classes;
    std::optional<FlowSet> flows;   // of all classes, when first solved
    Rates rates;                    // in use; of empty classes the last that they had
    std::vector<Nanoseconds> last;  // when each class was last solved with members
    Key solved;                     // the numbers of members for which the rates are exact
    Nanoseconds since{0};           // when they were solved
    Nanoseconds time{0};            // of all progress
    Nanoseconds next = Nanoseconds::max();
    bool changed = true;  // members have changed since `next` was found
  };

  Part& part_of(std::size_t number) { return *parts_[part_[number]]; }
  void join_parts(std::uint32_t number, const Solution& alone);
  void pass(Part& part, Nanoseconds now);
  void renew(Part& part);
  struct Changes {
    std::uint64_t members = 0;  // when the rates in use were solved
    std::uint64_t changes = 0;  // since then: more or fewer, by class
  };
  static Changes compare(const Part& part, const Key& key);
  bool good_enough(const Part& part, const Key& key) const;
  void find_rates(Part& part, const Key& key);
  std::uint32_t limit_of(Part& part, std::size_t index) const;
  void end_members(Part& part, std::vector<Job*>& done);

  Scheduler& turns_;
  const Solver& solver_;
  std::vector<Class> classes_;
  std::vector<std::uint32_t> part_;  // by class
  std::vector<std::unique_ptr<Part>> parts_;
  std::vector<CeilingUse> ceilings_;
  std::vector<std::optional<std::uint32_t>> part_of_ceiling_;
  Key key_;
  std::vector<double> threads_;
  std::uint64_t order_ = 0;
  std::uint64_t solved_ = 0;
};

}  // namespace headrace::sim
