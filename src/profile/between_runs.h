// SPDX-License-Identifier: Apache-2.0
// What differs between runs of one measurement, estimated from few runs of many rows.
//
// The variance of a row over three runs is itself known badly: one row of a hundred seems ten times
// as quiet as it is. So each row's is moderated by those of the others (Smyth 2004, "limma"): rows
// of an experiment are taken to have variances from one distribution, which is estimated from all
// of them. Pure. Thread-safe.
#pragma once

#include <span>
#include <vector>

namespace headrace::between_runs {

// A variance, and how many degrees of freedom it is estimated with.
struct Variance {
  double value = 0;
  double freedom = 0;
};

// What the values of runs vary by around the mean of their side: sum of squares / (runs - sides).
// Requires: no side is empty. Freedom 0 where each side has one run.
Variance pooled(std::span<const std::vector<double>> sides);

// Each moderated by all, to at most as many degrees of freedom more as one of them has: rows that
// are slow in the same runs are not independent. Those without freedom get what is usual; nothing
// is known of any: freedom stays 0.
std::vector<Variance> moderated(std::span<const Variance> own);

// t with P(|T| > t) = p for Student's T: exact for one and two degrees of freedom, from three on
// that of Gaver and Kafadar (1984), for p from 1e-5 to 0.01 up to 12 % larger and not smaller.
// Between and below, as of the whole number beneath, at least 1.
double two_sided_t(double p, double freedom);

// z with P(|N(0,1)| > z) = p: rational approximation 26.2.23 of Abramowitz and Stegun, error below
// 4.5e-4.
double two_sided_z(double p);

}  // namespace headrace::between_runs
