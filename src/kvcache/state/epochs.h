// SPDX-License-Identifier: Apache-2.0
// Counts operations, so that a thread can wait for all that began before a point in time while
// others begin.
//
// An operation keeps what begin() returns for end(). A waiting thread keeps what mark() returns,
// and asks passed().
//
// An operation belongs to the epoch in which it began. Two epochs are open at most: the next one
// begins once the older of them has ended and a thread waits for the newer. So a waiting thread
// waits for at most two epochs, however many operations begin meanwhile. Thread-compatible.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace headrace::kvcache {

class Epochs {
 public:
  // Returns the side, which the operation keeps for end().
  std::uint8_t begin() {
    const auto side = static_cast<std::uint8_t>(epoch_ % 2);
    ++counts_[side];
    ++begun_;
    return side;
  }
  void end(std::uint8_t side) { --counts_[side]; }

  // How many operations have begun.
  std::uint64_t begun() const { return begun_; }

  std::uint64_t mark() const { return epoch_; }
  // Whether all operations have ended that began before mark() returned `mark`.
  bool passed(std::uint64_t mark) {
    while (epoch_ < mark + 2 && counts_[(epoch_ + 1) % 2] == 0) ++epoch_;
    return epoch_ >= mark + 2;
  }

 private:
  std::uint64_t epoch_ = 0;
  std::uint64_t begun_ = 0;
  std::array<std::size_t, 2> counts_{};  // operations that have not ended, by epoch % 2
};

}  // namespace headrace::kvcache
