// Which points of a session are measured: those most worth knowing that fit into its time.
// Single-thread.
#pragma once

#include <cstddef>
#include <vector>

#include "headrace/measure.h"
#include "measure/session/experiment.h"

namespace headrace::session {

// How often a point is measured at least. A model gives the same every time.
std::size_t least_mappings(const Point& point, const MeasureOptions& options);

// Chooses the points that fit, in order of rank, by the estimated time of their rounds; one that
// does not fit is passed over for smaller ones behind it. The others get a reason. Where nothing
// fits, the most wanted point stays: it is measured as often as there is time for, and once at
// least. Without a budget all.
void leave_out(std::vector<Point>& points, const MeasureOptions& options);

}  // namespace headrace::session
