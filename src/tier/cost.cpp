// SPDX-License-Identifier: Apache-2.0
#include "tier/cost.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "core/fail.h"
#include "headrace/statistics.h"
#include "headrace/tier/hotness.h"
#include "host/kernel.h"
#include "memory/memory.h"

namespace headrace {
namespace {

constexpr int kRounds = 5;
constexpr Nanoseconds kMostTime = std::chrono::milliseconds{400};

// Memory that a source can track, with all pages present.
struct TrialMemory {
  std::optional<SharedMemory> shared;
  MappedMemory own;
  std::span<std::byte> bytes;

  static Result<TrialMemory> make(HotnessKind kind, Bytes size) {
    TrialMemory memory;
    if (kind == HotnessKind::memfd) {
      HEADRACE_TRY(memory.shared, SharedMemory::make(size));
      memory.bytes = memory.shared->bytes();
    } else {
      auto mapped = MappedMemory::make(size, huge_page(), base_page(), PROT_READ | PROT_WRITE);
      if (!mapped) return fail_errno(mapped.error(), "cannot map memory");
      memory.own = std::move(*mapped);
      memory.bytes = {memory.own.memory(), size.value};
      // Costs are per base page.
      (void)::madvise(memory.bytes.data(), size.value, MADV_NOHUGEPAGE);
    }
    return memory;
  }
};

void write_each_page(std::span<std::byte> memory, std::size_t page) {
  for (std::size_t at = 0; at < memory.size(); at += page) {
    volatile std::byte& byte = memory[at];
    byte = std::byte{1};
  }
}

Result<HotnessCost> measure(HotnessKind kind, Bytes memory) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  if (memory.value == 0 || memory.value % page != 0) {
    return fail(ErrorCode::invalid, "{} bytes are not whole pages", memory.value);
  }
  HEADRACE_TRY(const TrialMemory trial, TrialMemory::make(kind, memory));
  HEADRACE_TRY(const auto source, open_hotness(kind, {.least_interval = {}}));
  return timed_cost(
      *source, trial.bytes, memory.value / page, [&] { write_each_page(trial.bytes, page); },
      system_clock());
}

}  // namespace

Result<HotnessCost> timed_cost(HotnessSource& source, std::span<const std::byte> memory,
                               std::size_t pages, const std::function<void()>& write,
                               const Clock& clock) {
  const Nanoseconds begin = clock.now();
  const auto per_page = [&](Nanoseconds since) {
    return static_cast<double>((clock.now() - since).count()) / static_cast<double>(pages);
  };
  const auto written = [&] {
    const Nanoseconds since = clock.now();
    write();
    return per_page(since);
  };
  std::vector<double> before;
  std::vector<double> first;
  std::vector<double> looks;
  write();  // allocates the pages
  for (int i = 0; i < kRounds; ++i) before.push_back(written());
  HEADRACE_TRY_STATUS(source.track(memory));
  for (int i = 0; i < kRounds && clock.now() - begin < kMostTime; ++i) {
    first.push_back(written());
    const Nanoseconds since = clock.now();
    HEADRACE_TRY_STATUS(source.look());
    looks.push_back(per_page(since));
  }
  return HotnessCost{.look_ns_per_page = median(looks).value_or(0),
                     .access_ns = median(before).value_or(0),
                     .first_access_ns = median(first).value_or(0),
                     .pages = pages};
}

Result<HotnessCost> measure_hotness_cost(HotnessKind kind, Bytes memory) {
  return no_throw([&] { return measure(kind, memory); });
}

}  // namespace headrace
