// The inside of ProcessTier, which tests open over a process of their own. Thread-compatible.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/fork.h"
#include "headrace/tier/process_tier.h"
#include "tier/process/access_rates.h"
#include "tier/process/guard.h"
#include "tier/process/hold.h"
#include "tier/process/other_process.h"

namespace headrace {

// Chance that memory of which `rate` touches per second come is touched within ten seconds: what a
// TierPolicy is told as heat.
double heat_of(double rate);

// A chunk of at least `chunk` such that no more than 4 Mi of them are in `memory`.
Bytes chunk_for(Bytes memory, Bytes chunk);

// What a tier has found out and taken before it begins.
struct ProcessTierStart {
  std::optional<HintFaults> hints;    // held where hint faults are the source
  std::optional<ProcessClaim> claim;  // of the process
  std::string why;                    // this source
  Nanoseconds of_fault{};             // that a page takes from swap
  // Tried when the process has got threads, where none asked for another source.
  std::function<Result<HintFaults>()> hints_later;
};

class ProcessTier::Inside {
 public:
  static Result<std::unique_ptr<Inside>> open(std::unique_ptr<OtherProcess> process,
                                              const ProcessTierOptions& options,
                                              ProcessTierStart start);

  ProcessHotness source() const {
    return start_.hints ? ProcessHotness::hint_faults : ProcessHotness::refaults;
  }
  // False in a child made by fork().
  bool here() const { return origin_.here(); }
  const std::string& why() const { return start_.why; }
  Result<ProcessTierStep> step();
  std::vector<TierDecision> decisions() const { return {log_.begin(), log_.end()}; }
  ProcessTierTotals totals() const { return totals_; }

 private:
  struct Candidate {
    double rate = 0;
    std::uintptr_t begin = 0;
    Nanoseconds last{};  // touched or moved; if again since, it is none any more
  };
  static bool hotter(const Candidate& a, const Candidate& b);
  Inside(std::unique_ptr<OtherProcess> process, const ProcessTierOptions& options,
         ProcessTierStart start, const ProcessState& state);

  Nanoseconds now() const { return clock_.now() - begun_; }
  Status work();
  Status check_same(const ProcessState& state) const;
  void take_faults();
  void take_fault(const PageFault& fault);
  void note_round();
  void try_hints();
  Status survey();
  Status survey_range(const TrackedRange& range, Nanoseconds surveyed);
  void survey_chunk(std::uintptr_t begin, ChunkPages found, Nanoseconds surveyed);
  bool survey_due() const;
  void offer_returned();
  std::vector<ChunkPlace> candidates(Bytes budget);
  Status carry_out(std::vector<TierDecision> decisions);
  Status page_out(std::vector<TrackedRange> ranges);
  Status bring_in(const std::vector<std::uintptr_t>& chunks);
  Status guard();
  Status undo();
  void moved(std::uintptr_t begin, bool in);
  TrackedRange range_of(std::uintptr_t begin) const;

  const Origin origin_;
  const std::unique_ptr<OtherProcess> process_;
  const ProcessTierOptions options_;
  const Clock& clock_;
  const Nanoseconds begun_;
  const std::uint64_t page_;
  ProcessTierStart start_;
  bool listens_ = false;
  ProcessState first_;
  ProcessState state_;
  std::optional<Error> ended_;

  AccessRates rates_;
  std::vector<PageFault> faults_;
  std::optional<std::uint64_t> rounds_;     // of the kernel for hints
  std::optional<Nanoseconds> round_began_;  // the one under way
  std::vector<TrackedRange> memory_;
  Bytes resident_;
  Bytes out_;
  std::optional<Nanoseconds> surveyed_;
  Nanoseconds survey_cost_{};
  Nanoseconds cpu_at_survey_{};  // of the program
  // The coldest that are resident, coldest last, and the hottest that are out, hottest last.
  std::vector<Candidate> coldest_;
  std::vector<Candidate> hottest_;
  std::vector<std::uintptr_t> returned_;  // by faults, since the last step
  bool exhausted_ = false;                // fewer could go out than should
  Bytes gone_;                            // totals_.went_out at the last survey
  Bytes stayed_;  // went out by our decision, and the survey found it where it was

  Guard guard_;
  Bytes budget_;
  Nanoseconds again_at_{};  // when the policy's budget is tried again
  Nanoseconds pause_;
  std::deque<std::pair<Nanoseconds, std::vector<std::uintptr_t>>> sent_out_;  // lately

  Nanoseconds stepped_{};
  Bytes allowance_;
  Bytes expected_;  // to come back until the next step
  ProcessTierStep step_;
  ProcessTierTotals totals_;
  std::deque<TierDecision> log_;
};

}  // namespace headrace
