// SPDX-License-Identifier: Apache-2.0
#include "cache/structures/asymmetric_fence.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "core/check.h"
#include "core/sanitizers.h"

namespace headrace {
namespace {

constinit std::atomic<std::uint64_t> passed_so_far{0};

long membarrier(int command) { return syscall(SYS_membarrier, command, 0, 0); }

}  // namespace

bool prepare_asymmetric_fence() {
#if defined(HEADRACE_TSAN)
  return false;
#else
  // Again for each caller: a child of fork() must register itself.
  return membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0;
#endif
}

void heavy_fence() {
  constexpr int kTries = 100;  // if the kernel lacks memory for a moment
  bool passed = false;
  for (int i = 0; i < kTries && !passed; ++i) {
    passed = membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0;
    if (!passed && errno != ENOMEM) break;
  }
  const bool membarrier_is_still_allowed = passed;
  CHECK(membarrier_is_still_allowed);
  ++passed_so_far;
}

std::uint64_t heavy_fences_passed() { return passed_so_far; }

}  // namespace headrace
