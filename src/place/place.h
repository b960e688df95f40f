// SPDX-License-Identifier: Apache-2.0
// Facade of the folder, besides the public headers: the CPUs that work together, and the memory
// that each of them uses. Thread-compatible.
#pragma once

#include "place/team.h"  // IWYU pragma: export
