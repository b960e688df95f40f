// SPDX-License-Identifier: Apache-2.0
// Tiers another process between fast and slow nodes. Decides and moves as PageTier does; mappings
// and touches are observed from outside. Thread-compatible.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tier/page/page_tier.h"
#include "tier/process/process_tier.h"

namespace headrace {

// Touches as input for heat. Written pages count fully. The other pages of a mapping share its
// reads evenly, since it is unknown which were read.
HotnessSample sample_of(std::span<const MappingUse> mappings, Nanoseconds covered);
// The same from sampled regions, each with its share of samples that saw an access.
HotnessSample sample_of(std::span<const SampledRegion> regions, Nanoseconds covered);

// The system's kernel, but moving pages of the process `pid`.
std::unique_ptr<Kernel> kernel_of(int pid);

// Checks that its pages may move to the nodes and that it may be observed. Errors: as
// ProcessTier::open().
Status try_nodes(int pid, const ProcessTierOptions& options, OtherProcess& process);

class ProcessNodes final : public ProcessTier::Inside {
 public:
  static Result<std::unique_ptr<ProcessNodes>> open(std::unique_ptr<OtherProcess> process,
                                                    std::unique_ptr<Kernel> kernel,
                                                    const ProcessTierOptions& options,
                                                    ProcessTierStart start);

  ProcessHotness source() const override {
    return start_.sampler != nullptr ? ProcessHotness::damon : ProcessHotness::referenced;
  }
  std::vector<TierDecision> decisions() const override { return engine_->decisions(); }

 private:
  ProcessNodes(std::unique_ptr<OtherProcess> process, std::unique_ptr<Kernel> kernel,
               const ProcessTierOptions& options, ProcessTierStart start,
               const ProcessState& state);

  Status work() override { return due() ? look() : Status{}; }
  bool due() const;
  Status look();
  Status move(std::span<const MappingUse> mappings, const HotnessSample& sample);

  const std::unique_ptr<Kernel> kernel_;
  std::unique_ptr<PageTier::Inside> engine_;
  std::optional<Nanoseconds> looked_;  // begin of the observed time
  Nanoseconds cost_{};                 // of the last look and its moves
};

}  // namespace headrace
