// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/calibration.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "backend/cpu/coldness.h"
#include "backend/cpu/kernels.h"
#include "core/thread.h"

namespace headrace {
namespace {

// A sample copies twice this many bytes. That is enough for every stream of a kernel to run at full
// speed, and leaves time for several rounds over a dozen kernels.
constexpr std::size_t kSample = 512 << 10;
// The second copy of a sample reads from an odd address, as user data may lie. "rep movsb" and some
// vector loads are fast only if both sides have the same alignment.
constexpr std::size_t kOdd = 24;
constexpr std::size_t kRounds = 5;
// Hardly noticeable at a first copy, and enough: the winner is some tens of percent ahead of
// memcpy.
constexpr Nanoseconds kBudget = std::chrono::milliseconds{25};

void plain_copy(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }

constexpr CopyKernel kMemcpy{"memcpy", plain_copy};

// RacePages has its own pages, so the race neither needs nor disturbs an allocator.
class RacePages {
 public:
  explicit RacePages(std::size_t bytes)
      : bytes_(bytes),
        memory_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0)) {}
  ~RacePages() {
    if (*this) munmap(memory_, bytes_);
  }
  RacePages(const RacePages&) = delete;
  RacePages& operator=(const RacePages&) = delete;

  explicit operator bool() const { return memory_ != MAP_FAILED; }
  std::byte* get() const { return static_cast<std::byte*>(memory_); }

 private:
  const std::size_t bytes_;
  void* const memory_;
};

// Measures CPU time, so a kernel loses nothing when its core is taken away for a while.
Nanoseconds time_cold(const CopyKernel& kernel, std::byte* to, const std::byte* from) {
  Nanoseconds spent{0};
  for (const std::size_t odd : {std::size_t{0}, kOdd}) {
    flush_from_caches(from, kSample + kOdd);
    flush_from_caches(to, kSample);
    const Nanoseconds start = thread_cpu();
    kernel.copy(to, from + odd, kSample);
    spent += thread_cpu() - start;
  }
  return spent;
}

// The kernels in the race: those of the widest instruction sets, and memcpy, which on some CPUs
// streams as fast as any kernel. SSE2 competes only without a wider set, since it is never ahead of
// AVX2.
std::vector<CopyKernel> contenders() {
  auto all = copy_kernels();
  const bool wide = std::ranges::any_of(all, [](auto& k) { return k.name.starts_with("avx"); });
  if (wide) std::erase_if(all, [](auto& k) { return k.name.starts_with("sse"); });
  all.push_back(kMemcpy);
  return all;
}

std::optional<CopyKernel> find_kernel(std::string_view name) {
  if (name == kMemcpy.name) return kMemcpy;
  for (const CopyKernel& kernel : copy_kernels()) {
    if (kernel.name == name) return kernel;
  }
  return std::nullopt;
}

}  // namespace

std::vector<RaceResult> race(std::span<const CopyKernel> kernels, Nanoseconds budget,
                             const Clock& clock) {
  const RacePages to(kSample);
  const RacePages from(kSample + kOdd);
  if (!to || !from) return {};
  std::vector<std::vector<Nanoseconds>> times(kernels.size());
  const Nanoseconds end = clock.now() + budget;
  for (std::size_t round = 0; round < kRounds; ++round) {
    if (round > 0 && clock.now() >= end) break;
    for (std::size_t i = 0; i < kernels.size(); ++i) {
      times[i].push_back(time_cold(kernels[i], to.get(), from.get()));
    }
  }
  std::vector<RaceResult> results;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    const auto middle = times[i].begin() + static_cast<std::ptrdiff_t>(times[i].size() / 2);
    std::ranges::nth_element(times[i], middle);
    results.push_back({kernels[i], *middle});
  }
  std::ranges::sort(results, {}, &RaceResult::time);
  return results;
}

CopyKernel choose_kernel(std::string_view wanted) {
  if (const auto named = find_kernel(wanted)) return *named;
  const auto all = contenders();
  const auto results = race(all, kBudget);
  return results.empty() ? all.front() : results.front().kernel;
}

std::string wanted_kernel() {
  const char* wanted = std::getenv("HEADRACE_COPY_KERNEL");
  return wanted == nullptr ? "" : wanted;
}

std::string override_note() {
  const std::string wanted = wanted_kernel();
  if (wanted.empty()) return {};
  if (find_kernel(wanted)) return fmt::format("kernel {} by HEADRACE_COPY_KERNEL", wanted);
  std::string known = "memcpy";
  for (const CopyKernel& kernel : copy_kernels()) known += fmt::format(", {}", kernel.name);
  return fmt::format("HEADRACE_COPY_KERNEL={} ignored: this CPU has {}", wanted, known);
}

}  // namespace headrace
