// The copy kernels of this build, by instruction set, and which of them this CPU can run.
//
// Internal to the folder; users see copy_kernels() of headrace/copy.h. Thread-safe.
#pragma once

#include <span>
#include <vector>

#include "headrace/copy.h"

namespace headrace {

// All kernels compiled for an instruction set, whether or not this CPU has it. Empty on other
// architectures than x86-64.
std::span<const CopyKernel> sse2_kernels();
std::span<const CopyKernel> avx2_kernels();
std::span<const CopyKernel> avx512_kernels();

}  // namespace headrace
