// SPDX-License-Identifier: Apache-2.0
// Facade of the folder, besides the public headers: scales of the speed of memories, the CPUs
// that work together, and the memory that each of them uses. Thread-compatible.
#pragma once

#include "place/ranked.h"  // IWYU pragma: export
#include "place/team.h"    // IWYU pragma: export
