// SPDX-License-Identifier: Apache-2.0
// Facade of the folder, besides the public headers: which CPUs work together, and which memory each
// of them uses. Thread-compatible.
#pragma once

#include "place/team.h"  // IWYU pragma: export
