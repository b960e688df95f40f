// SPDX-License-Identifier: Apache-2.0
// The nodes to which a block may be copied. The answers of the placement policy are remembered, so
// that a miss need not ask again. Thread-safe.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "cache/structures/relaxed.h"
#include "headrace/machine.h"
#include "headrace/object.h"
#include "headrace/placement.h"
#include "headrace/result.h"
#include "headrace/units.h"

namespace headrace {

// Each word has a question and its answer. An answer that another one displaced is asked for again.
class DestinationMemory {
 public:
  // `bytes` is a power of two.
  std::optional<std::uint16_t> find(NodeId source, std::optional<NodeId> initiator,
                                    std::uint64_t bytes) const {
    const auto question = pack(source, initiator, bytes);
    if (!question) return std::nullopt;
    const std::uint64_t word = words_[slot_of(*question)];
    if (word >> kAnswerBits != *question) return std::nullopt;
    return static_cast<std::uint16_t>(word);
  }
  void remember(NodeId source, std::optional<NodeId> initiator, std::uint64_t bytes,
                std::uint16_t answer) {
    const auto question = pack(source, initiator, bytes);
    if (question) words_[slot_of(*question)] = *question << kAnswerBits | answer;
  }

 private:
  static constexpr unsigned kAnswerBits = 16;
  static constexpr unsigned kNodeBits = 20;  // larger numbers are not remembered
  static constexpr unsigned kClassBits = 6;
  static constexpr std::size_t kWords = 256;

  // Never 0, which is an empty word.
  static std::optional<std::uint64_t> pack(NodeId source, std::optional<NodeId> initiator,
                                           std::uint64_t bytes) {
    constexpr std::uint64_t kMost = std::uint64_t{1} << kNodeBits;
    const std::uint64_t from = std::uint64_t{raw(source)} + 1;
    const std::uint64_t by = initiator ? std::uint64_t{raw(*initiator)} + 1 : 0;
    if (from >= kMost || by >= kMost) return std::nullopt;
    const auto c = static_cast<std::uint64_t>(std::countr_zero(bytes));
    return (from << kNodeBits | by) << kClassBits | c;
  }
  static std::size_t slot_of(std::uint64_t question) {
    // Fibonacci hashing, as in index.h.
    return question * 0x9e3779b97f4a7c15 >> 56;
  }

  std::array<Relaxed<std::uint64_t>, kWords> words_{};
};

// The node of a copy, and whether another may be used if that one is full.
struct Destination {
  std::uint16_t node = 0;  // index of its budget
  bool spills = false;
};

// Asks the policy of one cache. It may allocate and call the user, so ask without a lock.
class Destinations {
 public:
  // `nodes`: those with a budget.
  Destinations(const Machine& machine, const PlacementPolicy& policy, std::vector<NodeId> nodes);

  // Requires: the extent has an object. `initiator`: default: the node of the calling CPU.
  Result<Destination> first(const Extent& extent, std::optional<NodeId> initiator) const;
  // The first node of the placement with a budget, then the nodes with a budget that it spills to.
  Result<std::vector<std::uint16_t>> all(const Extent& extent,
                                         std::optional<NodeId> initiator) const;

 private:
  // A remembered Destination is its node and this bit.
  static constexpr std::uint16_t kSpills = 1U << 15;
  Result<Placement> resolve_here(const Placement& placement, std::optional<NodeId> initiator) const;
  std::optional<NodeId> calling_node() const;

  const Machine& machine_;
  const PlacementPolicy& policy_;
  const std::vector<NodeId> nodes_;
  std::vector<std::optional<NodeId>> node_of_cpu_;
  mutable DestinationMemory known_;
};

// The nodes to try for a missing block: the first of its placement, then, if the placement spills,
// one node after the other while they have no space. Single-thread.
class Targets {
 public:
  Targets(const Destinations& all, const Extent& extent, std::optional<NodeId> initiator)
      : all_(all), extent_(extent), initiator_(initiator) {
    if (!extent.valid() || extent.length.value == 0) return;
    first_ = all.first(extent, initiator);
    spills_ = first_ && first_->spills;
  }

  // An error: there is no node.
  const Result<Destination>& first() const { return first_; }
  // Whether there may be another node after the last one.
  bool more() const { return spills_ && (nodes_.empty() || at_ + 1 < nodes_.size()); }
  // The next node, or the first if there is no other.
  std::uint16_t next();
  // Starts again with the first node.
  std::uint16_t again() {
    at_ = 0;
    return first_->node;
  }

 private:
  const Destinations& all_;
  const Extent& extent_;
  const std::optional<NodeId> initiator_;
  Result<Destination> first_ = Destination{};
  bool spills_ = false;
  std::vector<std::uint16_t> nodes_;  // empty: not asked for yet
  std::size_t at_ = 0;
};

}  // namespace headrace
