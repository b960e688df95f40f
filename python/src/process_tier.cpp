// SPDX-License-Identifier: Apache-2.0
// Tiering of another process.
#include "headrace/tier/process_tier.h"

#include <nanobind/stl/unique_ptr.h>

#include <memory>
#include <mutex>
#include <optional>

#include "handles.h"
#include "record.h"
#include "types.h"

namespace headrace::python {

using namespace nb::literals;

namespace {

// Threads of Python may call at once, since a step lets the interpreter go.
class SharedTier {
 public:
  explicit SharedTier(std::unique_ptr<ProcessTier> tier) : tier_(std::move(tier)) {}

  ProcessTierStep step() {
    return unwrap(without_gil([&]() -> Result<ProcessTierStep> {
      const std::lock_guard lock(mutex_);
      if (tier_ == nullptr) return closed();
      return tier_->step();
    }));
  }
  void close() {
    const GilRelease release;
    const std::lock_guard lock(mutex_);
    tier_.reset();
  }
  template <class Ask>
  auto ask(Ask what) {
    auto answer = [&]() -> Result<std::invoke_result_t<Ask, ProcessTier&>> {
      const GilRelease release;
      const std::lock_guard lock(mutex_);
      if (tier_ == nullptr) return closed();
      return what(*tier_);
    }();
    return unwrap(std::move(answer));
  }

 private:
  static Unexpected closed() {
    return Unexpected(Error{ErrorCode::invalid, "this tier is closed"});
  }
  std::mutex mutex_;
  std::unique_ptr<ProcessTier> tier_;
};

void bind_step(nb::module_& m) {
  Record<ProcessTierStep>(m, "ProcessTierStep", "The result of one step.")
      .field("resident", &ProcessTierStep::resident, "Bytes in the fast tier, as far as known.")
      .field("out", &ProcessTierStep::out, "Bytes in the slow tier.")
      .field("went_out", &ProcessTierStep::went_out, "Bytes that this step demoted.")
      .field("came_in", &ProcessTierStep::came_in, "Bytes that this step promoted.")
      .field("returned", &ProcessTierStep::returned,
             "Bytes promoted by the program's own page faults.")
      .field("refused", &ProcessTierStep::refused,
             "Bytes that could not be demoted, by the last survey.")
      .field("surveyed", &ProcessTierStep::surveyed, "Whether the places of all pages were read.")
      .field("undone", &ProcessTierStep::undone,
             "Moves that the guard undid, and why; empty if none.")
      .field("note", &ProcessTierStep::note, "An obstacle to tiering, in words; empty if none.");
  Record<ProcessTierTotals>(m, "ProcessTierTotals", "Times (s) and counts since the start.")
      .field("elapsed", &ProcessTierTotals::elapsed, "Since the start.")
      .field("program_cpu", &ProcessTierTotals::program_cpu, "CPU time of the program.")
      .field("major_faults", &ProcessTierTotals::major_faults, "Major page faults of the program.")
      .field("tracker_cpu", &ProcessTierTotals::tracker_cpu, "CPU time to find out and decide.")
      .field("mover_cpu", &ProcessTierTotals::mover_cpu, "CPU time to move.")
      .field("went_out", &ProcessTierTotals::went_out, "Bytes demoted.")
      .field("came_in", &ProcessTierTotals::came_in, "Bytes promoted.")
      .field("undone", &ProcessTierTotals::undone, "Times that the guard undid something.")
      .field("lost", &ProcessTierTotals::lost,
             "Page faults that were lost because they came too fast.");
}

}  // namespace

void bind_process_tier(nb::module_& m) {
  bind_step(m);
  nb::class_<SharedTier>(m, "ProcessTier",
                         "Memory of another process between DRAM and swap, or between nodes. "
                         "Thread-safe.")
      .def_prop_ro(
          "source",
          [](SharedTier& self) {
            return self.ask([](ProcessTier& tier) { return tier.source(); });
          },
          "The source of hotness.")
      .def_prop_ro(
          "why",
          [](SharedTier& self) { return self.ask([](ProcessTier& tier) { return tier.why(); }); },
          "Why this source was chosen, and which settings it changed.")
      .def("step", &SharedTier::step,
           "Takes the observed accesses, decides and moves; call it a few times a second. "
           "AbsentError: the process has ended, or has become another program.")
      .def(
          "decisions",
          [](SharedTier& self) {
            return self.ask([](ProcessTier& tier) { return tier.decisions(); });
          },
          "The last decisions, at most 1000, oldest first.")
      .def(
          "totals",
          [](SharedTier& self) {
            return self.ask([](ProcessTier& tier) { return tier.totals(); });
          },
          "Times and counts since the start.")
      .def("close", &SharedTier::close, "Stops tiering, and restores the kernel's settings.");
  m.def(
      "tier_process",
      [](int pid, Bytes budget, const std::optional<Word<ProcessHotness>>& source, double guard,
         Bytes per_second, Nanoseconds half_life, const std::string& directory,
         const std::vector<NodeId>& fast, const std::vector<NodeId>& slow, bool hold) {
        ProcessTierOptions options;
        options.policy.budget = budget;
        options.policy.per_second = per_second;
        options.half_life = half_life;
        options.guard = guard;
        options.directory = directory;
        options.fast = fast;
        options.slow = slow;
        options.hold = hold;
        if (source) options.source = source->get();
        return std::make_unique<SharedTier>(
            unwrap(without_gil([&] { return ProcessTier::open(pid, options); })));
      },
      "pid"_a, "budget"_a, nb::kw_only(), "source"_a = nb::none(), "guard"_a = 0.05,
      "per_second"_a = (64_MiB).value, "half_life"_a = 0.0, "directory"_a = "",
      "fast"_a = std::vector<NodeId>{}, "slow"_a = std::vector<NodeId>{}, "hold"_a = false,
      "Keeps a process within `budget` bytes of fast memory, hot pages first. Without nodes, cold "
      "pages go to swap; with nodes, the budget is for the `fast` nodes and the rest goes to the "
      "`slow` ones. `hold`: with swap, also set the limit of its cgroup. ExhaustedError: another "
      "program tiers the process already. DeniedError: swap takes root; nodes take the same user. "
      "UnsupportedError: no swap.");
  m.def(
      "restore_after_kill",
      [](const std::string& directory) {
        const GilRelease release;  // it may wait for locks
        return restore_after_kill(directory);
      },
      "directory"_a = "",
      "Restores kernel settings that a killed tier left behind. True if there were any.");
}

}  // namespace headrace::python
