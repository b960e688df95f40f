// SPDX-License-Identifier: Apache-2.0
// The variation between runs of one measurement, estimated from few runs of many rows.
//
// A row's variance over three runs is itself uncertain: one row in a hundred seems ten times as
// quiet as it is. So each row's variance is moderated by those of the other rows (Smyth 2004,
// "limma"): the variances of an experiment's rows are assumed to be from one distribution,
// estimated from all of them. Pure. Thread-safe.
#pragma once

#include <span>
#include <vector>

namespace headrace::between_runs {

// A variance and its degrees of freedom.
struct Variance {
  double value = 0;
  double freedom = 0;
};

// The variance of runs around the mean of their side: sum of squares / (runs - sides). Freedom is 0
// if each side has one run. Requires: no side is empty.
Variance pooled(std::span<const std::vector<double>> sides);

// Moderates each variance by all. Each gains at most as many degrees of freedom as the largest of
// them has, since rows that are slow in the same runs are not independent. Variances without
// freedom get the usual variance. If none has freedom, freedom stays 0.
std::vector<Variance> moderated(std::span<const Variance> own);

// The t with P(|T| > t) = p for Student's T. Exact for one and two degrees of freedom. From three
// on by Gaver and Kafadar (1984): for p from 1e-5 to 0.01 up to 12 % too large and never too small.
// Fractions of freedom are rounded down, to at least 1.
double two_sided_t(double p, double freedom);

// The z with P(|N(0,1)| > z) = p, by the rational approximation 26.2.23 of Abramowitz and Stegun.
// Its error is below 4.5e-4.
double two_sided_z(double p);

}  // namespace headrace::between_runs
