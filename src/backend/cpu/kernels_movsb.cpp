// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/kernels.h"

namespace headrace {

#if defined(__x86_64__)

namespace {

void movsb_copy(void* to, const void* from, std::size_t bytes) {
  // "+" and the clobber tell the compiler of the changed registers and memory.
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}

constexpr CopyKernel kKernels[] = {{"movsb", movsb_copy}};

}  // namespace

std::span<const CopyKernel> movsb_kernels() { return kKernels; }

#else

std::span<const CopyKernel> movsb_kernels() { return {}; }

#endif

}  // namespace headrace
