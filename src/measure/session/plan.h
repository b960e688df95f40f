// SPDX-License-Identifier: Apache-2.0
// Chooses the points that a session measures: the most wanted ones that fit its time. Each
// experiment has a share of the time. Single-thread.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "headrace/measure.h"
#include "measure/session/experiment.h"

namespace headrace::session {

inline constexpr double kRepetitionsOfCosts = 3;  // repetitions that Point::cost stands for
// Points of this rank and above are the least wanted.
inline constexpr unsigned kWantedLast = 4;

// Minimum number of mappings of a point, which is also the maximum if it is not measured until
// certain. A model needs one. Without a budget, each of several launches measures a point twice,
// least wanted points once: their interval is over launches.
std::size_t least_mappings(const Point& point, const MeasureOptions& options);
// Whether a point has a fixed number of mappings.
bool is_counted(const Point& point, const MeasureOptions& options);

// Relative shares by experiment name; 1 if not listed.
using Shares = std::map<std::string, unsigned>;

// Chooses the points that fit, by estimated time of their rounds:
// 1. Each experiment takes its own points by rank, within its share.
// 2. Remaining time goes to the other points of all experiments, by rank.
//
// A point that does not fit is skipped for smaller ones after it, and gets a reason. If nothing
// fits, the most wanted point stays, with as many mappings as there is time for, at least one.
// Without a budget all points stay.
void leave_out(std::vector<Point>& points, const MeasureOptions& options,
               const Shares& shares = {});

// Time of each point for its minimum of mappings, in order; 0 for points with a reason. Shared
// setups and shared races count at their first point.
std::vector<Nanoseconds> times_of(const std::vector<Point>& points, const MeasureOptions& options);

}  // namespace headrace::session
