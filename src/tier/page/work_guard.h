// SPDX-License-Identifier: Apache-2.0
// Decides whether moving pages slows a program down, by the work that the program reports. Pure.
// Thread-compatible.
//
// A program's rate changes by itself, so a fall alone proves nothing. The guard therefore stops
// moves now and then and compares the rates. After a fall it stops moves; only if that helped does
// it stop them for long.
#pragma once

#include <cstdint>
#include <optional>

#include "headrace/units.h"

namespace headrace {

class WorkGuard {
 public:
  // Calls of hear() per span; rates of spans are compared.
  static constexpr unsigned kSpan = 8;
  // The maximum rest in spans, and the number of moving spans after which a rest is measured anew.
  static constexpr unsigned kLongest = 64;

  enum class Verdict {
    move,
    rest,  // no moves for speed
    undo,  // as rest; and moves since fresh() was last true did harm
  };

  // `share`: how far work per second may fall below the rate at rest; 0: no guard.
  explicit WorkGuard(double share) : share_(share) {}

  // `work`: total until `now`, in any unit. If `work` or the clock goes backwards, the guard
  // restarts.
  Verdict hear(std::uint64_t work, Nanoseconds now);

  // Whether a span began with the last call of hear().
  bool fresh() const { return calls_ == 0; }
  // Work per second in the last span at rest, and in the last span.
  double at_rest() const { return at_rest_; }
  double lately() const { return lately_; }

 private:
  struct Since {
    std::uint64_t work = 0;
    Nanoseconds time{};
  };

  void begin(Since now);
  Verdict moved();
  Verdict rested();

  double share_;
  std::optional<Since> since_;  // begin of the span
  Since last_;                  // at the last call
  unsigned calls_ = 0;
  bool resting_ = true;
  unsigned left_ = 1;    // remaining spans of rest
  unsigned length_ = 0;  // of the last rest that helped, in spans
  unsigned moving_ = 0;  // spans of moving
  bool fell_ = false;    // before this rest
  double fell_to_ = 0;
  double at_rest_ = 0;
  double lately_ = 0;
};

}  // namespace headrace
