// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/copy_loop.h"

#include <fmt/ranges.h>

#include <cstring>

#include "core/fail.h"

namespace headrace::instruments {
namespace {

// Keeps the compiler from dropping a copy whose result is unused, and from merging two copies.
inline void keep_memory() { asm volatile("" : : : "memory"); }

template <class Copy>
void repeat(const Copy& copy, CopyArea& area, std::size_t bytes, std::size_t times) {
  std::byte* const to = area.to.data();
  const std::byte* const from = area.from.data();
  if (area.cold) {
    for (std::size_t i = 0; i < times; ++i) {
      const std::size_t at = area.walk.next() * bytes;
      copy(to + at, from + at, bytes);
      keep_memory();
    }
  } else {
    for (std::size_t i = 0; i < times; ++i) {
      copy(to, from, bytes);
      keep_memory();
    }
  }
}

void run_memcpy(const CopyKernel&, CopyArea& area, std::size_t bytes, std::size_t times) {
  const auto copy = [](void* to, const void* from, std::size_t n) { std::memcpy(to, from, n); };
  repeat(copy, area, bytes, times);
}

void run_cpu(const CopyKernel&, CopyArea& area, std::size_t bytes, std::size_t times) {
  const auto copy = [](void* to, const void* from, std::size_t n) { copy_bytes(to, from, n); };
  repeat(copy, area, bytes, times);
}

void run_kernel(const CopyKernel& kernel, CopyArea& area, std::size_t bytes, std::size_t times) {
  repeat(kernel.copy, area, bytes, times);
}

}  // namespace

std::vector<std::string> CopyLoop::all() {
  std::vector<std::string> names{"memcpy", "cpu"};
  for (const CopyKernel& kernel : copy_kernels()) names.emplace_back(kernel.name);
  return names;
}

Result<CopyLoop> CopyLoop::find(std::string_view engine) {
  if (engine == "memcpy") return CopyLoop(run_memcpy, {});
  if (engine == "cpu") return CopyLoop(run_cpu, {});
  for (const CopyKernel& kernel : copy_kernels()) {
    if (kernel.name == engine) return CopyLoop(run_kernel, kernel);
  }
  return fail(ErrorCode::absent, "no copy engine {} on this CPU; it has {}", engine,
              fmt::join(all(), ", "));
}

}  // namespace headrace::instruments
