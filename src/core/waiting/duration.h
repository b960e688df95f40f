// SPDX-License-Identifier: Apache-2.0
// Times in words, as people tell them. Thread-safe.
#pragma once

#include <string>

#include "headrace/units.h"

namespace headrace {

// "30 s", "1.5 ms", "10 min": the unit that people would take, at most one decimal.
std::string to_string(Nanoseconds time);

}  // namespace headrace
