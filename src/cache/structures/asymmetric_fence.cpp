#include "cache/structures/asymmetric_fence.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/check.h"
#include "core/sanitizers.h"

namespace headrace {
namespace {

long membarrier(int command) { return syscall(SYS_membarrier, command, 0, 0); }

}  // namespace

bool prepare_asymmetric_fence() {
#if defined(HEADRACE_TSAN)
  return false;
#else
  // Again for each caller: a child of fork() has to register by itself.
  return membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0;
#endif
}

void heavy_fence() { CHECK(membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0); }

}  // namespace headrace
