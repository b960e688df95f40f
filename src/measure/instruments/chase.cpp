// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/chase.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "core/check.h"

namespace headrace::instruments {
namespace {

// A line of a cycle; a chase reads its first word.
struct CycleLine {
  void* next;
  std::size_t index;  // position in the order of visits
  void* visited_at;   // in the i-th line of memory: the line visited i-th
};
static_assert(sizeof(CycleLine) <= kLine);

void shuffle(std::span<std::uint32_t> order, Random& random) {
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
}

// Lines in the order of visits.
std::vector<std::uint32_t> visit_order(std::size_t lines, std::size_t per_window, Random& random) {
  const std::size_t windows = (lines + per_window - 1) / per_window;
  std::vector<std::uint32_t> window_order(windows);
  std::iota(window_order.begin(), window_order.end(), 0);
  shuffle(window_order, random);
  std::vector<std::uint32_t> order;
  order.reserve(lines);
  for (const std::uint32_t window : window_order) {
    const std::size_t begin = window * per_window;
    const std::size_t end = std::min(begin + per_window, lines);
    const std::size_t first = order.size();
    for (std::size_t line = begin; line < end; ++line) {
      order.push_back(static_cast<std::uint32_t>(line));
    }
    shuffle(std::span(order).subspan(first), random);
  }
  return order;
}

}  // namespace

void* make_cycle(std::span<std::byte> area, Bytes window, Random& random) {
  const std::size_t lines = area.size() / kLine;
  CHECK(lines >= 2 && lines <= UINT32_MAX);
  const std::size_t asked = window.value / kLine;
  const std::size_t per_window = asked == 0 || asked > lines ? lines : asked;
  const auto order = visit_order(lines, per_window, random);
  const auto line = [&](std::size_t index) {
    return reinterpret_cast<CycleLine*>(area.data() + index * kLine);
  };
  for (std::size_t i = 0; i < lines; ++i) {
    CycleLine& visited = *line(order[i]);
    visited.next = line(order[i + 1 == lines ? 0 : i + 1]);
    visited.index = i;
    line(i)->visited_at = &visited;
  }
  return line(order[0]);
}

void* line_of_cycle(std::span<const std::byte> area, std::size_t index) {
  CHECK(index < area.size() / kLine);
  return reinterpret_cast<const CycleLine*>(area.data() + index * kLine)->visited_at;
}

std::size_t index_in_cycle(const void* line) { return static_cast<const CycleLine*>(line)->index; }

namespace {

#if defined(__x86_64__)
// clflushopt allows many lines in flight, clflush, which all x86-64 CPUs have, only one.
bool has_clflushopt() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kFeatures = 7;  // EBX bit 23
  return __get_cpuid_count(kFeatures, 0, &a, &b, &c, &d) != 0 && (b >> 23 & 1) != 0;
}
#endif

}  // namespace

std::size_t drop_from_caches(std::span<const std::byte> memory) {
  const std::size_t lines = (memory.size() + kLine - 1) / kLine;
  const std::byte* at = memory.data();
#if defined(__x86_64__)
  if (has_clflushopt()) {
    for (std::size_t i = 0; i < lines; ++i, at += kLine) {
      __asm__ volatile("clflushopt %0" : : "m"(*at) : "memory");
    }
  } else {
    for (std::size_t i = 0; i < lines; ++i, at += kLine) {
      __asm__ volatile("clflush %0" : : "m"(*at) : "memory");
    }
  }
  __asm__ volatile("mfence" : : : "memory");
  return lines;
#elif defined(__aarch64__)
  for (std::size_t i = 0; i < lines; ++i, at += kLine) {
    __asm__ volatile("dc civac, %0" : : "r"(at) : "memory");
  }
  __asm__ volatile("dsb ish" : : : "memory");
  return lines;
#else
  (void)at;
  return 0;
#endif
}

// In assembly where supported, so that no compiler keeps the pointer in memory between two loads.
#if defined(__x86_64__)
#define HEADRACE_NEXT(at) __asm__ volatile("movq (%0), %0" : "+r"(at) : : "memory")
#elif defined(__aarch64__)
#define HEADRACE_NEXT(at) __asm__ volatile("ldr %0, [%0]" : "+r"(at) : : "memory")
#else
#define HEADRACE_NEXT(at) at = *static_cast<void* volatile*>(at)
#endif

__attribute__((noinline)) void* chase(void* at, std::size_t steps) {
  static_assert(kChaseUnroll == 16);
  for (std::size_t left = (steps + kChaseUnroll - 1) / kChaseUnroll; left > 0; --left) {
    HEADRACE_NEXT(at);
    HEADRACE_NEXT(at);
    HEADRACE_NEXT(at);
    HEADRACE_NEXT(at);
    HEADRACE_NEXT(at);
    HEADRACE_NEXT(at);
    HEADRACE_NEXT(at);
    HEADRACE_NEXT(at);
    HEADRACE_NEXT(at);
    HEADRACE_NEXT(at);
    HEADRACE_NEXT(at);
    HEADRACE_NEXT(at);
    HEADRACE_NEXT(at);
    HEADRACE_NEXT(at);
    HEADRACE_NEXT(at);
    HEADRACE_NEXT(at);
  }
  return at;
}

TimedChase chase_for(void* at, std::uint64_t ticks, std::size_t most,
                     const std::function<std::uint64_t()>& counter) {
  constexpr std::size_t kStep = 4096;
  TimedChase done{.end = at, .loads = 0, .ticks = 0, .fastest = UINT64_MAX};
  std::uint64_t before = counter();
  while (done.ticks < ticks && done.loads < most) {
    done.end = chase(done.end, kStep);
    done.loads += kStep;
    const std::uint64_t now = counter();
    done.fastest = std::min(done.fastest, now - before);
    done.ticks += now - before;
    before = now;
  }
  return done;
}

namespace {

// Up to about a dozen chains are in registers. A pointer on the stack costs some cycles per load,
// negligible beside a load from memory.
template <std::size_t kChains>
__attribute__((noinline)) void chase_chains(void** at, std::size_t steps) {
  void* chains[kChains];
  std::copy_n(at, kChains, chains);
  for (; steps > 0; --steps) {
    for (std::size_t i = 0; i < kChains; ++i) HEADRACE_NEXT(chains[i]);
  }
  std::copy_n(chains, kChains, at);
}

using ChaseLoop = void (*)(void** at, std::size_t steps);

template <std::size_t... kIndex>
ChaseLoop loop_of(std::size_t chains, std::index_sequence<kIndex...> /*all*/) {
  ChaseLoop found = nullptr;
  ((chains == kChainCounts[kIndex] ? void(found = chase_chains<kChainCounts[kIndex]>) : void()),
   ...);
  return found;
}

}  // namespace

#undef HEADRACE_NEXT

void chase_together(std::span<void*> at, std::size_t steps) {
  const ChaseLoop loop = loop_of(at.size(), std::make_index_sequence<kChainCounts.size()>{});
  CHECK(loop != nullptr);
  loop(at.data(), steps);
}

}  // namespace headrace::instruments
