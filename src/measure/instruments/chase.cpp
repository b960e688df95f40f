#include "measure/instruments/chase.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "core/check.h"

namespace headrace::instruments {
namespace {

void shuffle(std::span<std::uint32_t> order, Random& random) {
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
}

// Lines in the order in which they are visited.
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
  const auto cell = [&](std::uint32_t line) {
    return reinterpret_cast<void**>(area.data() + line * kLine);
  };
  for (std::size_t i = 0; i < lines; ++i) {
    *cell(order[i]) = cell(order[i + 1 == lines ? 0 : i + 1]);
  }
  return cell(order[0]);
}

// In assembly where we know it, so that no compiler keeps the pointer in memory between two loads.
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

#undef HEADRACE_NEXT

}  // namespace headrace::instruments
