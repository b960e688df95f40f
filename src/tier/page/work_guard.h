// SPDX-License-Identifier: Apache-2.0
// Whether moving pages makes a program slower, by the work that it says it has done: pure.
// Thread-compatible.
//
// What a program does per second changes by itself, so that a fall alone proves nothing: the guard
// lets moving rest now and then and compares with that. After a fall it rests, and only if that
// helped does it rest long.
#pragma once

#include <cstdint>
#include <optional>

#include "headrace/units.h"

namespace headrace {

class WorkGuard {
 public:
  // Spans of so many calls of hear() are compared.
  static constexpr unsigned kSpan = 8;
  // Most spans of rest, and spans of moving after which one of rest is measured anew.
  static constexpr unsigned kLongest = 64;

  enum class Verdict {
    move,
    rest,  // nothing is to move for the better
    undo,  // as rest; and what moved since fresh() was last true did harm
  };

  // Most by which work per second may fall below what it is at rest, a share; 0: no guard.
  explicit WorkGuard(double share) : share_(share) {}

  // `work`: done until `now`, in any unit; less than the last time, or a clock that was set back:
  // all begins anew.
  Verdict hear(std::uint64_t work, Nanoseconds now);

  // Whether a span begins with this call of hear().
  bool fresh() const { return calls_ == 0; }
  // Work per second of the last span at rest, and of the last span.
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
  std::optional<Since> since_;  // the span began
  Since last_;                  // call
  unsigned calls_ = 0;
  bool resting_ = true;
  unsigned left_ = 1;    // spans of rest
  unsigned length_ = 0;  // of the last rest that helped
  unsigned moving_ = 0;  // spans
  bool fell_ = false;    // before this rest
  double fell_to_ = 0;
  double at_rest_ = 0;
  double lately_ = 0;
};

}  // namespace headrace
