// SPDX-License-Identifier: Apache-2.0
#include "headrace/copy.h"

#include "backend/cpu/calibration.h"
#include "backend/cpu/coldness.h"
#include "backend/cpu/kernels.h"
#include "core/fork.h"

namespace headrace {
namespace {

// Whether this CPU has all instructions that Highway lets the compiler use for a width.
#if defined(__x86_64__)
bool has_ssse3() { return __builtin_cpu_supports("ssse3") != 0; }
bool has_avx2() { return __builtin_cpu_supports("x86-64-v3") != 0; }
bool has_avx512() { return __builtin_cpu_supports("x86-64-v4") != 0; }

// The copy in the CPU's microcode; on some CPUs it does not read the destination.
void movsb_copy(void* to, const void* from, std::size_t bytes) {
  // "+" and the clobber tell the compiler of the changed registers and memory.
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}
#else
bool has_ssse3() { return false; }
bool has_avx2() { return false; }
bool has_avx512() { return false; }
#endif

MadeOnce<CopyKernel> kernel_choice(kRankOfKernel);

}  // namespace

std::string_view to_string(CopyHint hint) {
  switch (hint) {
    case CopyHint::automatic: return "automatic";
    case CopyHint::keep: return "keep";
    case CopyHint::stream: return "stream";
  }
  return "unknown";
}

std::vector<CopyKernel> copy_kernels() {
  std::vector<CopyKernel> all;
  const auto add = [&all](auto kernels) { all.insert(all.end(), kernels.begin(), kernels.end()); };
#if defined(__x86_64__)
  all.push_back({"movsb", movsb_copy});
#endif
  if (has_ssse3()) add(sse2_kernels());
  if (has_avx2()) add(avx2_kernels());
  if (has_avx512()) add(avx512_kernels());
  return all;
}

CopyKernel chosen_copy_kernel() {
  return kernel_choice.get([] { return choose_kernel(wanted_kernel()); });
}

void copy_large(void* to, const void* from, std::size_t bytes, CopyHint hint) {
  if (bytes == 0) return;
  const bool stream =
      hint == CopyHint::stream || (hint == CopyHint::automatic && looks_cold(to, bytes));
  if (stream) {
    chosen_copy_kernel().copy(to, from, bytes);
  } else {
    std::memcpy(to, from, bytes);
  }
}

}  // namespace headrace
