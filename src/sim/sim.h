// SPDX-License-Identifier: Apache-2.0
// Facade of the folder: production code in virtual time, on a machine that is only described.
#pragma once

#include "sim/backend.h"    // IWYU pragma: export
#include "sim/flows.h"      // IWYU pragma: export
#include "sim/host.h"       // IWYU pragma: export
#include "sim/scheduler.h"  // IWYU pragma: export
