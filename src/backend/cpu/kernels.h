// SPDX-License-Identifier: Apache-2.0
// The copy kernels of this build, by instruction set, whether or not this CPU can run them.
//
// Internal to the folder. Users see copy_kernels() of headrace/copy.h, which contains only kernels
// that the CPU can run. Each list begins with the plainest kernel. All lists are empty on
// architectures other than x86-64. Thread-safe.
#pragma once

#include <span>

#include "headrace/copy.h"

namespace headrace {

// Non-temporal stores of 16 bytes (for CPUs with SSSE3), 32 and 64.
std::span<const CopyKernel> sse2_kernels();
std::span<const CopyKernel> avx2_kernels();
std::span<const CopyKernel> avx512_kernels();

}  // namespace headrace
