// SPDX-License-Identifier: Apache-2.0
// The insides of ProcessTier, which tests open over a process of their own. Thread-compatible.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/fork.h"
#include "headrace/tier/process_tier.h"
#include "memory/memory.h"
#include "tier/process/access_rates.h"
#include "tier/process/guard.h"
#include "tier/process/other_process.h"
#include "tier/settings/damon.h"
#include "tier/settings/group_hold.h"
#include "tier/settings/hold.h"

namespace headrace {

// Chance that memory of which `rate` touches per second come is touched within ten seconds: what a
// TierPolicy is told as heat.
double heat_of(double rate);

// The one that is asked for; else the first.
Nanoseconds half_life_of(const ProcessTierOptions& options);

// A chunk of at least `chunk` such that no more than 4 Mi of them are in `memory`.
Bytes chunk_for(Bytes memory, Bytes chunk);

// What a tier has found out and taken before it begins.
struct ProcessTierStart {
  std::optional<HintFaults> hints;         // held where hint faults are the source
  std::unique_ptr<RegionSampler> sampler;  // where it is the source
  std::optional<GroupHold> hold;           // by its cgroup, if asked for
  std::string why;                         // this source, and what is set
  Nanoseconds of_fault{};                  // that a page takes from swap
  Bytes huge_page = headrace::huge_page();
  // Tried when the process has got threads, where nobody asked for another source.
  std::function<Result<HintFaults>()> hints_later;
};

// absent: it is another process than at `first`, or another program.
Status check_same(const ProcessState& state, const ProcessState& first);

// Adds to `sum` the CPU time that the sampler, if there is one, has taken and was not `counted`.
void add_cpu(RegionSampler* sampler, Nanoseconds& counted, Nanoseconds& sum);

// As ProcessTier; one class for each kind of slow memory.
class ProcessTier::Inside {
 public:
  virtual ~Inside() = default;
  // False in a child made by fork().
  virtual bool here() const = 0;
  virtual ProcessHotness source() const = 0;
  virtual const std::string& why() const = 0;
  virtual Result<ProcessTierStep> step() = 0;
  virtual std::vector<TierDecision> decisions() const = 0;
  virtual ProcessTierTotals totals() const = 0;
};

// Between DRAM and swap.
class ProcessSwap final : public ProcessTier::Inside {
 public:
  static Result<std::unique_ptr<ProcessSwap>> open(std::unique_ptr<OtherProcess> process,
                                                   const ProcessTierOptions& options,
                                                   ProcessTierStart start);

  ProcessHotness source() const override {
    if (start_.sampler != nullptr) return ProcessHotness::damon;
    return start_.hints ? ProcessHotness::hint_faults : ProcessHotness::refaults;
  }
  bool here() const override { return origin_.here(); }
  const std::string& why() const override { return start_.why; }
  Result<ProcessTierStep> step() override;
  std::vector<TierDecision> decisions() const override { return {log_.begin(), log_.end()}; }
  ProcessTierTotals totals() const override { return totals_; }

 private:
  struct Candidate {
    double rate = 0;
    std::uintptr_t begin = 0;
    Nanoseconds last{};  // touched or moved; if again since, it is none any more
  };
  static bool hotter(const Candidate& a, const Candidate& b);
  ProcessSwap(std::unique_ptr<OtherProcess> process, const ProcessTierOptions& options,
              ProcessTierStart start, const ProcessState& state);

  Nanoseconds now() const { return clock_.now() - begun_; }
  Status work();
  Status listen();
  void take_faults();
  void take_fault(const PageFault& fault);
  Status take_samples();
  void note_samples(std::uintptr_t begin, Nanoseconds surveyed);
  void note_round();
  void try_hints();
  Status survey();
  Status survey_range(const TrackedRange& range, Nanoseconds surveyed);
  void survey_chunk(std::uintptr_t begin, ChunkPages found, Nanoseconds surveyed);
  bool is_elsewhere() const;
  bool survey_due() const;
  void offer_returned();
  std::vector<ChunkPlace> candidates(Bytes budget);
  Status carry_out(std::vector<TierDecision> decisions);
  Status page_out(std::vector<TrackedRange> ranges);
  Status bring_in(const std::vector<std::uintptr_t>& chunks);
  void set_half_life();
  Status guard();
  // Whether things go out by now.
  bool begun() const { return guard_.before() || options_.guard == 0; }
  // Has the kernel keep to the budget from then on, if it may.
  void hold(bool may);
  // A survey of a terabyte takes seconds, as moves to a slow disk do, and swap may fill meanwhile.
  void look_at_limit() {
    if (now() - held_ >= std::chrono::milliseconds{250}) hold(true);
  }
  Status undo();
  void moved(std::uintptr_t begin, bool in);
  TrackedRange range_of(std::uintptr_t begin) const {
    return {begin, begin + options_.chunk.value};
  }

  const Origin origin_;
  const std::unique_ptr<OtherProcess> process_;
  const ProcessTierOptions options_;
  const Clock& clock_;
  const Nanoseconds begun_;
  const std::uint64_t page_;
  ProcessTierStart start_;
  bool listens_ = false;
  std::string unheard_;  // as OtherProcess::unheard()
  Nanoseconds held_{};   // when the limit was last looked at
  ProcessState first_;
  ProcessState state_;
  std::optional<Error> ended_;

  AccessRates rates_;
  std::vector<PageFault> faults_;
  std::vector<SampledRegion> samples_;  // of the last survey
  Nanoseconds sampler_cpu_{};
  std::optional<std::uint64_t> rounds_;     // of the kernel for hints
  std::optional<Nanoseconds> round_began_;  // the one under way
  std::vector<TrackedRange> memory_;
  Bytes resident_;
  Bytes out_;
  std::optional<Nanoseconds> surveyed_;
  Nanoseconds survey_cost_{};
  Nanoseconds cpu_at_survey_{};  // of the program
  double beside_ = 0;  // bytes it had in memory then that are not managed; below 0: shared
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
  // What came back since then, and bytes per second of it before.
  Bytes returned_since_;
  Nanoseconds counted_{};
  double return_rate_ = 0;
  ProcessTierStep step_;
  ProcessTierTotals totals_;
  std::deque<TierDecision> log_;
};

}  // namespace headrace
