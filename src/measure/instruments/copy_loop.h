// SPDX-License-Identifier: Apache-2.0
// The loops that bench_copy times: one copy function, again and again, on cold or hot memory.
//
// Compiled once per engine with the copy inlined as in a user's program, so that for 64 bytes the
// copy is timed and not a call through a pointer. Thread-safe (no state).
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/copy.h"
#include "headrace/result.h"
#include "headrace/units.h"
#include "measure/instruments/walk.h"

namespace headrace::instruments {

// The memory of one thread of an experiment, and its place in the walk over it.
struct CopyArea {
  std::span<std::byte> to;
  std::span<const std::byte> from;
  ScatteredWalk walk;  // over slots of the copied size
  bool cold = true;    // walk; else the first slot again and again
};

// An engine that can be timed.
class CopyLoop {
 public:
  // "memcpy", "cpu" or the name of a kernel this CPU can run; absent lists them.
  static Result<CopyLoop> find(std::string_view engine);
  static std::vector<std::string> all();

  // Copies `bytes` `times` times and returns how long that took.
  Nanoseconds run(CopyArea& area, std::size_t bytes, std::size_t times) const {
    return run_(kernel_, area, bytes, times);
  }

 private:
  using Run = Nanoseconds (*)(const CopyKernel&, CopyArea&, std::size_t, std::size_t);
  CopyLoop(Run loop, CopyKernel kernel) : run_(loop), kernel_(kernel) {}

  Run run_;
  CopyKernel kernel_;
};

}  // namespace headrace::instruments
