#include "headrace/copy.h"

#include "backend/cpu/calibration.h"
#include "backend/cpu/coldness.h"
#include "backend/cpu/kernels.h"

namespace headrace {
namespace {

#if defined(__x86_64__)
bool has_avx2() { return __builtin_cpu_supports("avx2") != 0; }
bool has_avx512() { return __builtin_cpu_supports("avx512f") != 0; }
#else
bool has_avx2() { return false; }
bool has_avx512() { return false; }
#endif

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
  add(movsb_kernels());
  add(sse2_kernels());
  if (has_avx2()) add(avx2_kernels());
  if (has_avx512()) add(avx512_kernels());
  return all;
}

CopyKernel chosen_copy_kernel() {
  static const Choice choice = choose_kernel(wanted_kernel());
  return choice.kernel;
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
