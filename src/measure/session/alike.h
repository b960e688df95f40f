// SPDX-License-Identifier: Apache-2.0
// Pairs of nodes that are alike, of which a session measures one.
// Single-thread.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "measure/session/experiment.h"

namespace headrace::session {

// How two nodes lie to each other: "near" (the CPUs nearest to both are the
// same), "socket" or "far"; "far" too where sockets are unknown and the nodes
// differ.
std::string_view distance_of(const Machine& machine, const Node& a, const Node& b);

// Leaves of points that differ in their nodes only, and whose nodes are alike,
// one: that whose memory has the lowest number, so that few memories are
// filled. It names the others (Row::stands_for). Alike are nodes of the same
// kinds with as many CPUs, each two of them as near to each other (distance_of,
// and the distance of the firmware). Cells of a matrix stay if `keep`.
// Requires: the points are of one experiment with these parameters.
void measure_alike_once(std::vector<Point>& points, const Machine& machine,
                        std::span<const Parameter> parameters, bool keep_matrices);

}  // namespace headrace::session
