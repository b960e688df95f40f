#include "headrace/copy.h"

#include "backend/cpu/kernels.h"

namespace headrace {
namespace {

bool has_avx2() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") != 0;
#else
  return false;
#endif
}

bool has_avx512() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512f") != 0;
#else
  return false;
#endif
}

void plain_copy(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }

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
  std::vector<CopyKernel> all(sse2_kernels().begin(), sse2_kernels().end());
  if (has_avx2()) all.insert(all.end(), avx2_kernels().begin(), avx2_kernels().end());
  if (has_avx512()) all.insert(all.end(), avx512_kernels().begin(), avx512_kernels().end());
  return all;
}

CopyKernel chosen_copy_kernel() {
  static const CopyKernel chosen = [] {
    const auto all = copy_kernels();
    return all.empty() ? CopyKernel{"memcpy", plain_copy} : all.back();
  }();
  return chosen;
}

void copy_large(void* to, const void* from, std::size_t bytes, CopyHint hint) {
  if (hint != CopyHint::stream) {
    std::memcpy(to, from, bytes);
    return;
  }
  chosen_copy_kernel().copy(to, from, bytes);
}

}  // namespace headrace
