// SPDX-License-Identifier: Apache-2.0
// How much memory the hottest pages take, so how much of a data set has to be fast.
//
// Not a measurement: the caller gives a histogram of accesses, or a law. Pure functions.
// Thread-safe.
#pragma once

#include <vector>

#include "headrace/export.h"
#include "headrace/result.h"

namespace HEADRACE_API headrace {

// A class of equally used pages: their number, and the accesses of each.
struct PageCount {
  double pages = 1;
  double accesses = 0;  // per page
};

// The smallest number of pages that takes this share of all accesses: the hottest pages.
// Errors: invalid: no access at all; a number that is negative or not finite; a share outside 0 to
// 1.
Result<double> pages_for(std::vector<PageCount> histogram, double share);
// The share of accesses that the `pages` hottest pages take. Errors as above.
Result<double> accesses_of(std::vector<PageCount> histogram, double pages);

// The same two functions for pages whose accesses fall as 1 / rank^exponent (Zipf).
// Errors: invalid: as above; an exponent outside 0 to 10; no page.
Result<double> zipf_pages_for(double exponent, double pages, double share);
Result<double> zipf_accesses_of(double exponent, double pages, double hottest);

// The sum of 1 / i^exponent for i from 1 to n, within 1e-11. Grows between integers too.
// Requires: 0 <= exponent <= 10, n >= 0.
double zipf_sum(double exponent, double n);

}  // namespace HEADRACE_API headrace
