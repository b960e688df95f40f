// SPDX-License-Identifier: Apache-2.0
// Facade of the folder: how fast flows of bytes are on a machine that is only described.
//
// Solver::create(machine) reads the constants; solve(flows) gives each flow's rate, latency and
// limit.
//
// Nothing here starts a thread, reads a clock or touches hardware.
#pragma once

#include "model/ceilings.h"    // IWYU pragma: export
#include "model/side_cache.h"  // IWYU pragma: export
#include "model/solver.h"      // IWYU pragma: export
