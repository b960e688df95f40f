// SPDX-License-Identifier: Apache-2.0
// Which points of a session are measured: those most worth knowing that fit
// into its time, of which each experiment has a share. Single-thread.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "headrace/measure.h"
#include "measure/session/experiment.h"

namespace headrace::session {

inline constexpr double kRepetitionsOfCosts = 3;  // Point::cost is of so many
// Points of this rank and more are what one wants to know last.
inline constexpr unsigned kWantedLast = 4;

// How often a point is measured at least, and at most where it is not measured until it is certain.
// A model gives the same every time. Of several launches without a budget each measures a point
// twice, what is wanted last once: their interval is over launches.
std::size_t least_mappings(const Point& point, const MeasureOptions& options);
// Whether it is measured just so often, whatever comes out.
bool is_counted(const Point& point, const MeasureOptions& options);

// Relative, by the name of the experiment; 1 for one that is not there.
using Shares = std::map<std::string, unsigned>;

// Chooses the points that fit, by the estimated time of their rounds. First
// each experiment takes its own in order of rank within its share; what shares
// leave over goes to the others of all in order of rank. One that does not fit
// is passed over for smaller ones behind it. Those left out get a reason. Where
// nothing fits, the most wanted point stays: it is measured as often as there
// is time for, and once at least. Without a budget all.
void leave_out(std::vector<Point>& points, const MeasureOptions& options,
               const Shares& shares = {});

// What each point takes in its least mappings, in their order: what several
// share, and races whose winners several go by, is counted at the first of
// them; 0 for those with a reason.
std::vector<Nanoseconds> times_of(const std::vector<Point>& points, const MeasureOptions& options);

}  // namespace headrace::session
