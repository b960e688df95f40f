// SPDX-License-Identifier: Apache-2.0
// The copy kernels of this build, by instruction set, whether or not this CPU can run them.
//
// Internal to the folder; users see copy_kernels() of headrace/copy.h, which leaves out what the
// CPU has not. Each list goes from the plainest kernel on; all are empty on other architectures
// than x86-64. Thread-safe.
#pragma once

#include <span>

#include "headrace/copy.h"

namespace headrace {

// "rep movsb": the copy the CPU's own microcode does; some avoid reading the destination in it.
std::span<const CopyKernel> movsb_kernels();
// Non-temporal stores of 16 bytes (for CPUs with SSSE3), 32 and 64.
std::span<const CopyKernel> sse2_kernels();
std::span<const CopyKernel> avx2_kernels();
std::span<const CopyKernel> avx512_kernels();

}  // namespace headrace
