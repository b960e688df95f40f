// SPDX-License-Identifier: Apache-2.0
// A machine in a few lines, as `headrace topo` prints it: the tree of Machine::to_text(), with one
// line for similar nodes. The largest machine of today, 16 nodes of two kinds, takes 10 lines
// instead of 33.
//
// Not for programs, which should read the Machine. Thread-safe.
#pragma once

#include <string>

#include "headrace/export.h"
#include "headrace/machine.h"

namespace HEADRACE_API headrace {

// Nodes are similar if they differ only in numbers: their own, those of CPUs, sockets and engines,
// and those in reasons. Capacities are equal if their first two digits are: firmware and kernel
// reserve a little on some nodes.
std::string overview(const Machine& machine);

}  // namespace HEADRACE_API headrace
