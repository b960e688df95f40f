// The cost of copying as a line: T(V) = latency + V / bandwidth. Thread-compatible.
#pragma once

#include "headrace/units.h"

namespace headrace {

struct CopyCost {
  Nanoseconds latency{0};
  BytesPerSecond bandwidth;
};

// The line through two measured points; the latency is 0 where the line would make it negative
// (the small copy was faster per byte, from a cache). Where even the slope is not positive, the
// large point alone gives the bandwidth. Requires: small < large, times > 0.
CopyCost fit_cost(Bytes small, Nanoseconds small_time, Bytes large, Nanoseconds large_time);

}  // namespace headrace
