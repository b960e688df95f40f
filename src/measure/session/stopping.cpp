// SPDX-License-Identifier: Apache-2.0
#include "measure/session/stopping.h"

#include <algorithm>

namespace headrace::session {

bool is_certain(std::span<const double> values, double width) {
  if (values.size() >= kLooks.back()) return true;
  if (std::ranges::find(kLooks, values.size()) == kLooks.end()) return false;
  const Interval interval = *median_interval(values);
  return interval.high - interval.low <= width * *median(values);
}

}  // namespace headrace::session
