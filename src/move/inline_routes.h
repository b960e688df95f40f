// SPDX-License-Identifier: Apache-2.0
// Remembers which moves one engine copies whole inside submit(): one word per route, read and
// written without a lock.
//
// Answers may be lost: if one does not fit its word or was replaced, the scheduler is asked again.
// Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>

#include "headrace/units.h"

namespace headrace {

class InlineRoutes {
 public:
  std::optional<EngineId> find(NodeId from, NodeId to, Bytes bytes) const {
    const std::uint64_t question = word_of(from, to, bytes);
    const std::uint64_t word = words_[place_of(question)].load();
    if (question == 0 || (word & ~kEngineBits) != question) return std::nullopt;
    return EngineId{static_cast<std::uint32_t>(word & kEngineBits)};
  }
  void remember(NodeId from, NodeId to, Bytes bytes, EngineId engine) {
    const std::uint64_t question = word_of(from, to, bytes);
    if (question == 0 || raw(engine) > kEngineBits) return;
    words_[place_of(question)].store(question | raw(engine));
  }

 private:
  // A word: bytes (24 bits), from (16), to (16), engine (8). Few machines have larger ids, and no
  // piece that is copied inline has 16 MiB. A word with 0 bytes is no answer.
  static constexpr std::uint64_t kEngineBits = 0xff;
  static std::uint64_t word_of(NodeId from, NodeId to, Bytes bytes) {
    if (raw(from) >> 16 != 0 || raw(to) >> 16 != 0 || bytes.value >> 24 != 0) return 0;
    if (bytes.value == 0) return 0;
    return bytes.value << 40 | std::uint64_t{raw(from)} << 24 | std::uint64_t{raw(to)} << 8;
  }
  static std::size_t place_of(std::uint64_t question) {
    constexpr std::uint64_t kSpread = 0x9e3779b97f4a7c15;  // 2^64 divided by the golden ratio
    return (question >> 8) * kSpread >> 56;
  }

  std::array<std::atomic<std::uint64_t>, 256> words_{};
};

}  // namespace headrace
