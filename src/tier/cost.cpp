// SPDX-License-Identifier: Apache-2.0
// What a source costs here, measured on memory of its own.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "core/fail.h"
#include "headrace/statistics.h"
#include "headrace/tier/hotness.h"
#include "memory/memory.h"
#include "tier/kernel.h"

namespace headrace {
namespace {

constexpr int kRounds = 5;
constexpr Nanoseconds kMostTime = std::chrono::milliseconds{400};

// Memory that a source can track, all of its pages there.
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
      auto mapped = MappedMemory::make(size, 2_MiB, base_page(), PROT_READ | PROT_WRITE);
      if (!mapped) return fail_errno(mapped.error(), "cannot map memory");
      memory.own = std::move(*mapped);
      memory.bytes = {memory.own.memory(), size.value};
      // The figures are by page.
      (void)::madvise(memory.bytes.data(), size.value, MADV_NOHUGEPAGE);
    }
    return memory;
  }
};

// One write to each page; ns per page.
double write_each_page(std::span<std::byte> memory, std::size_t page) {
  const Nanoseconds begin = system_clock().now();
  for (std::size_t at = 0; at < memory.size(); at += page) {
    volatile std::byte& byte = memory[at];
    byte = std::byte{1};
  }
  const Nanoseconds time = system_clock().now() - begin;
  return static_cast<double>(time.count()) / static_cast<double>(memory.size() / page);
}

Result<HotnessCost> measure(HotnessKind kind, Bytes memory) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  if (memory.value == 0 || memory.value % page != 0) {
    return fail(ErrorCode::invalid, "{} bytes are not whole pages", memory.value);
  }
  HEADRACE_TRY(const TrialMemory trial, TrialMemory::make(kind, memory));
  HEADRACE_TRY(const auto source, open_hotness(kind, {.least_interval = {}}));
  const Nanoseconds begin = system_clock().now();
  std::vector<double> before;
  std::vector<double> first;
  std::vector<double> looks;
  write_each_page(trial.bytes, page);
  for (int i = 0; i < kRounds; ++i) before.push_back(write_each_page(trial.bytes, page));
  HEADRACE_TRY_STATUS(source->track(trial.bytes));
  for (int i = 0; i < kRounds && system_clock().now() - begin < kMostTime; ++i) {
    first.push_back(write_each_page(trial.bytes, page));
    const Nanoseconds looked = system_clock().now();
    HEADRACE_TRY_STATUS(source->look());
    const Nanoseconds time = system_clock().now() - looked;
    looks.push_back(static_cast<double>(time.count()) / static_cast<double>(memory.value / page));
  }
  return HotnessCost{.look_ns_per_page = median(looks).value_or(0),
                     .access_ns = median(before).value_or(0),
                     .first_access_ns = median(first).value_or(0),
                     .pages = memory.value / page};
}

}  // namespace

Result<HotnessCost> measure_hotness_cost(HotnessKind kind, Bytes memory) {
  return no_throw([&] { return measure(kind, memory); });
}

}  // namespace headrace
