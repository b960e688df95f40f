// SPDX-License-Identifier: Apache-2.0
// Facade of the folder: how fast flows of bytes are on a machine that is only described.
//
//     HEADRACE_TRY(const Solver solver, Solver::create(machine));
//     HEADRACE_TRY(const Solution solution, solver.solve(flows));
//     use(solution.flows[0].rate);
//
// Nothing here starts a thread, reads a clock or touches hardware.
#pragma once

#include "model/ceilings.h"    // IWYU pragma: export
#include "model/side_cache.h"  // IWYU pragma: export
#include "model/solver.h"      // IWYU pragma: export
