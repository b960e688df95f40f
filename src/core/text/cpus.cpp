// SPDX-License-Identifier: Apache-2.0
#include "headrace/cpus.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "core/fail.h"
#include "core/text/printable.h"

namespace headrace {
namespace {

// Above the kernel's largest NR_CPUS (8192 on x86-64): "0-4294967295" is an error and not 16 GiB of
// numbers.
constexpr unsigned kMaxCpus = 1u << 16;

std::optional<unsigned> parse_number(std::string_view text) {
  unsigned value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value < kMaxCpus ? std::optional(value) : std::nullopt;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\n";
  const auto begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

}  // namespace

std::string to_string(const CpuSet& cpus) {
  std::string text;
  for (std::size_t i = 0; i < cpus.size();) {
    std::size_t last = i;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += last == i ? fmt::format("{}", cpus[i]) : fmt::format("{}-{}", cpus[i], cpus[last]);
    i = last + 1;
  }
  return text;
}

Result<CpuSet> parse_cpu_list(std::string_view text) {
  CpuSet cpus;
  std::string_view rest = trimmed(text);
  while (!rest.empty()) {
    const auto comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    const auto dash = item.find('-');
    const auto first = parse_number(item.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : parse_number(item.substr(dash + 1));
    const bool open_end = comma != std::string_view::npos && comma + 1 == rest.size();
    if (!first || !last || *first > *last || open_end) {
      return fail(ErrorCode::invalid, "'{}' is not a list of numbers like 0-3,8", printable(text));
    }
    for (unsigned cpu = *first; cpu <= *last; ++cpu) cpus.push_back(cpu);
    rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
  }
  std::ranges::sort(cpus);
  cpus.erase(std::ranges::unique(cpus).begin(), cpus.end());
  return cpus;
}

}  // namespace headrace
