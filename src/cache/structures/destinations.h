// SPDX-License-Identifier: Apache-2.0
// Answers of a placement policy, so that a miss need not ask again. Each word has a question and
// its answer. Thread-safe; an answer that another one displaced is asked for again.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "cache/structures/relaxed.h"
#include "headrace/units.h"

namespace headrace {

class Destinations {
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

}  // namespace headrace
