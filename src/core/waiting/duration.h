// SPDX-License-Identifier: Apache-2.0
// Prints times for people. Thread-safe.
#pragma once

#include <string>

#include "headrace/units.h"

namespace headrace {

// "30 s", "1.5 ms", "10 min": in the usual unit, at most one decimal.
std::string to_string(Nanoseconds time);

}  // namespace headrace
