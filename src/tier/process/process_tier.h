// SPDX-License-Identifier: Apache-2.0
// The implementation of ProcessTier; tests open it over a fake process. Thread-compatible.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/fork.h"
#include "headrace/tier/process_tier.h"
#include "host/settings/damon.h"
#include "host/settings/group_hold.h"
#include "host/settings/hint_faults.h"
#include "memory/memory.h"
#include "tier/process/access_rates.h"
#include "tier/process/guard.h"
#include "tier/process/other_process.h"

namespace headrace {

// The probability that memory with `rate` touches per second is touched within ten seconds. It is
// the heat in a TierPolicy.
double heat_of(double rate);

// The requested half-life, else the initial one.
Nanoseconds half_life_of(const ProcessTierOptions& options);

// The smallest multiple by doubling of `chunk` with which `memory` has at most `most` chunks.
Bytes chunk_for(Bytes memory, Bytes chunk, std::uint64_t most = 4 << 20);

// Resources acquired and facts found before a tier begins.
struct ProcessTierStart {
  std::optional<HintFaults> hints;         // set if hint faults are the source
  std::unique_ptr<RegionSampler> sampler;  // set if it is the source
  std::optional<GroupHold> hold;           // by the cgroup, if requested
  std::string why;                         // why this source, and the host settings
  Nanoseconds of_fault{};                  // of one page from swap
  Bytes huge_page = headrace::huge_page();
  // Tried once the process has several threads, unless a source was requested.
  std::function<Result<HintFaults>()> hints_later;
};

// As ProcessTier; one derived class per kind of slow memory.
class ProcessTier::Inside {
 public:
  virtual ~Inside() = default;
  // False in a child made by fork().
  bool here() const { return origin_.here(); }
  const std::string& why() const { return start_.why; }
  Result<ProcessTierStep> step();
  ProcessTierTotals totals() const { return totals_; }
  virtual ProcessHotness source() const = 0;
  virtual std::vector<TierDecision> decisions() const = 0;

 protected:
  Inside(std::unique_ptr<OtherProcess> process, const ProcessTierOptions& options,
         ProcessTierStart start, const ProcessState& state);
  Nanoseconds now() const { return clock_.now() - begun_; }
  // The work of a step; state_ is new.
  virtual Status work() = 0;
  // Called after a failed step; no further one may come.
  virtual void failed() {}

  const std::unique_ptr<OtherProcess> process_;
  const ProcessTierOptions options_;
  ProcessTierStart start_;
  const ProcessState first_;
  ProcessState state_;
  ProcessTierStep step_;  // resident and out are those of the last step until they are known anew
  ProcessTierTotals totals_;

 private:
  // Errors: absent: the process has ended, or runs another program now.
  Status read_state();

  const Origin origin_;
  const Clock& clock_;
  const Nanoseconds begun_;
  Nanoseconds sampler_cpu_{};
  std::optional<Error> ended_;
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
  std::vector<TierDecision> decisions() const override { return {log_.begin(), log_.end()}; }

 private:
  struct Candidate {
    double rate = 0;
    std::uintptr_t begin = 0;
    Nanoseconds last{};  // touched or moved; stale if touched or moved since
  };
  static bool hotter(const Candidate& a, const Candidate& b);
  ProcessSwap(std::unique_ptr<OtherProcess> process, const ProcessTierOptions& options,
              ProcessTierStart start, const ProcessState& state);

  Status work() override;
  // Memory above a limit that stays may find no swap space.
  void failed() override { hold(false); }
  Status listen();
  void take_faults();
  void take_fault(const PageFault& fault);
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
  // Whether demotions have begun.
  bool begun() const { return guard_.before() || options_.guard == 0; }
  // Makes the kernel keep the budget until the next call, if `may`.
  void hold(bool may);
  // Call it in long operations: a survey of a terabyte takes seconds, as do moves to a slow disk,
  // and swap may fill up meanwhile.
  void look_at_limit() {
    if (now() - held_ >= std::chrono::milliseconds{250}) hold(true);
  }
  Status undo();
  void moved(std::uintptr_t begin, bool in);
  TrackedRange range_of(std::uintptr_t begin) const {
    return {begin, begin + options_.chunk.value};
  }

  const std::uint64_t page_;
  bool listens_ = false;
  std::string unheard_;  // as OtherProcess::unheard()
  Nanoseconds held_{};   // time of the last check of the limit

  AccessRates rates_;
  std::vector<PageFault> faults_;
  std::vector<SampledRegion> samples_;      // of the last survey
  std::optional<std::uint64_t> rounds_;     // the kernel's rounds for hints
  std::optional<Nanoseconds> round_began_;  // the current round
  std::vector<TrackedRange> memory_;
  Bytes& resident_ = step_.resident;
  Bytes& out_ = step_.out;
  std::optional<Nanoseconds> surveyed_;
  Nanoseconds survey_cost_{};
  Nanoseconds cpu_at_survey_{};  // CPU time of the program
  double beside_ = 0;            // unmanaged bytes in memory at the survey; below 0: shared
  // The coldest resident chunks, coldest last, and the hottest chunks in swap, hottest last.
  std::vector<Candidate> coldest_;
  std::vector<Candidate> hottest_;
  std::vector<std::uintptr_t> returned_;  // by faults since the last step
  bool exhausted_ = false;                // fewer demotions than needed
  Bytes gone_;                            // totals_.went_out at the last survey
  Bytes stayed_;                          // demoted by decision, but resident at the survey

  Guard guard_;
  Bytes budget_;
  Nanoseconds again_at_{};  // next try of the policy's budget
  Nanoseconds pause_;
  std::deque<std::pair<Nanoseconds, std::vector<std::uintptr_t>>> sent_out_;  // recent demotions

  Nanoseconds stepped_{};
  Bytes allowance_;
  Bytes expected_;  // returns expected until the next step
  // Bytes returned since counted_, and the earlier rate per second.
  Bytes returned_since_;
  Nanoseconds counted_{};
  double return_rate_ = 0;
  std::deque<TierDecision> log_;
};

}  // namespace headrace
