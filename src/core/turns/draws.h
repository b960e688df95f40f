// SPDX-License-Identifier: Apache-2.0
// Numbers that must differ from each other, but may be the same in each run: for ids of objects,
// and for what is drawn at random once. In a simulation (sim/scheduler.h) runs with one seed are
// then the same. Thread-safe.
#pragma once

#include <cstdint>

namespace headrace {

// The last number that was drawn in the simulation of the calling thread. Null: it is in none.
inline constinit thread_local std::uint64_t* simulated_draws = nullptr;

}  // namespace headrace
