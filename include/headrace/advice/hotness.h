// SPDX-License-Identifier: Apache-2.0
// How much memory the hottest pages take: what of a data set has to be fast.
//
// Not a measurement: a histogram of accesses is given, or a law. Pure functions. Thread-safe.
#pragma once

#include <vector>

#include "headrace/export.h"
#include "headrace/result.h"

namespace HEADRACE_API headrace {

// Pages by how often they are used: so many pages, each accessed so often.
struct PageCount {
  double pages = 1;
  double accesses = 0;  // of each page
};

// The least pages that take this share of all accesses: the hottest. invalid: no access at all, a
// number that is negative or not finite, a share outside 0 to 1.
Result<double> pages_for(std::vector<PageCount> histogram, double share);
// The share of accesses that the hottest pages, so many, take.
Result<double> accesses_of(std::vector<PageCount> histogram, double pages);

// The same of pages whose accesses fall as 1 / rank^exponent (Zipf). invalid as above, and an
// exponent outside 0 to 10, or no page.
Result<double> zipf_pages_for(double exponent, double pages, double share);
Result<double> zipf_accesses_of(double exponent, double pages, double hottest);

}  // namespace HEADRACE_API headrace
