#include "measure/fit.h"

#include <algorithm>

#include "core/check.h"

namespace headrace {

CopyCost fit_cost(Bytes small, Nanoseconds small_time, Bytes large, Nanoseconds large_time) {
  CHECK(small < large && small_time > Nanoseconds{0} && large_time > Nanoseconds{0});
  if (large_time <= small_time) return {Nanoseconds{0}, large / large_time};
  const BytesPerSecond slope = (large - small) / (large_time - small_time);
  const Nanoseconds latency = small_time - small / slope;
  if (latency < Nanoseconds{0}) return {Nanoseconds{0}, large / large_time};
  return {latency, slope};
}

}  // namespace headrace
