// SPDX-License-Identifier: Apache-2.0
// A machine at a glance, as `headrace topo` prints it: the tree of Machine::to_text(), with a line
// for nodes that are alike. The largest machine of today, 16 nodes of two kinds, takes ten lines,
// not 33.
//
// Not for programs: they ask the Machine. Thread-safe.
#pragma once

#include <string>

#include "headrace/export.h"
#include "headrace/machine.h"

namespace HEADRACE_API headrace {

// Nodes are alike that differ in numbers only: theirs, those of CPUs, sockets and engines, those in
// reasons. Capacities count as equal to two digits; firmware and kernel take a little from some.
std::string overview(const Machine& machine);

}  // namespace HEADRACE_API headrace
