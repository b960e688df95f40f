// SPDX-License-Identifier: Apache-2.0
// The loops of the experiment `copy`: one copy function, repeated, on cold or hot memory.
// Thread-safe (no state).
//
// Compiled once per engine with the copy inlined as in a user's program, so that copies of 64 bytes
// are timed without a call through a pointer.
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

// The memory of one thread, and its position in the walk over it.
struct CopyArea {
  std::span<std::byte> to;
  std::span<const std::byte> from;
  ScatteredWalk walk;  // over slots of the copied size
  bool cold = true;    // walk; false: always the first slot
};

// An engine that can be timed.
class CopyLoop {
 public:
  // Finds "memcpy", "cpu" or a kernel that this CPU can run. Errors: absent: the message lists
  // them.
  static Result<CopyLoop> find(std::string_view engine);
  static std::vector<std::string> all();

  // Copies `bytes` `times` times.
  void run(CopyArea& area, std::size_t bytes, std::size_t times) const {
    run_(kernel_, area, bytes, times);
  }

 private:
  using Run = void (*)(const CopyKernel&, CopyArea&, std::size_t, std::size_t);
  CopyLoop(Run loop, CopyKernel kernel) : run_(loop), kernel_(kernel) {}

  Run run_;
  CopyKernel kernel_;
};

}  // namespace headrace::instruments
