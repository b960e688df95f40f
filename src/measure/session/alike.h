// SPDX-License-Identifier: Apache-2.0
// Similar pairs of nodes, of which a session measures one. Single-thread.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "measure/session/experiment.h"

namespace headrace::session {

// How two nodes are placed to each other: "near" (same nearest CPUs), "socket" or "far". Different
// nodes with unknown sockets are "far".
std::string_view distance_of(const Machine& machine, const Node& a, const Node& b);

// Keeps one of several points that differ only in their nodes, if these are similar: the one with
// the lowest memory node, so that few memories are filled. Its row names the others
// (Row::stands_for). Nodes are similar if kinds and numbers of CPUs agree, and all distances
// between them (distance_of, and the firmware's). With `keep_matrices`, cells of a matrix stay.
// Requires: the points are of one experiment with these parameters.
void measure_alike_once(std::vector<Point>& points, const Machine& machine,
                        std::span<const Parameter> parameters, bool keep_matrices);

}  // namespace headrace::session
