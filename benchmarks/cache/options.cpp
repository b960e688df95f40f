// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/cache/options.h"

#include <fmt/format.h>

#include <charconv>
#include <functional>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "core/fail.h"

namespace headrace::cache_bench {
namespace {

template <class T>
Status set_number(T& value, std::string_view option, std::string_view text, T least, T most) {
  T found{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), found);
  if (error != std::errc{} || end != text.data() + text.size() || !(found >= least) ||
      !(found <= most)) {
    return fail(ErrorCode::invalid, "{} '{}': give {} to {}", option, text, least, most);
  }
  value = found;
  return {};
}

struct Option {
  std::string_view name;
  std::string_view value;  // in help; empty: a flag
  std::string_view about;
  std::function<Status(std::string_view)> set;
};

// Options that set fields of `options`, which must outlive them.
std::vector<Option> table(Options& options) {
  const auto bytes = [](std::string_view name, std::optional<Bytes>& value) {
    return [=, &value](std::string_view text) {
      return set_number(value.emplace().value, name, text, std::uint64_t{1} << 20,
                        std::uint64_t{1} << 40);
    };
  };
  return {
      {"--help", "", "Print this text and exit",
       [&](auto) { return options.help = true, Status{}; }},
      {"--list", "", "List implementations and scenarios as JSON",
       [&](auto) { return options.list = true, Status{}; }},
      {"--implementation", "NAME", "Cache to run",
       [&](std::string_view text) { return options.implementation = text, Status{}; }},
      {"--scenario", "NAME", "Scenario to run",
       [&](std::string_view text) { return options.scenario = text, Status{}; }},
      {"--threads", "N", "Number of threads (default 1)",
       [&](std::string_view text) {
         return set_number(options.threads, "--threads", text, 1U, 4096U);
       }},
      {"--seconds", "S", "Time of a run, or of each part with files (default 0.1)",
       [&](std::string_view text) {
         return set_number(options.seconds, "--seconds", text, 0.001, 3600.0);
       }},
      {"--operations", "N", "Operations per thread instead of a time",
       [&](std::string_view text) {
         return set_number(options.operations, "--operations", text, std::uint64_t{1},
                           std::uint64_t{1} << 40);
       }},
      {"--seed", "N", "Seed of all random numbers (default 1)",
       [&](std::string_view text) {
         return set_number(options.seed, "--seed", text, std::uint64_t{0},
                           std::numeric_limits<std::uint64_t>::max());
       }},
      {"--directory", "DIR", "Folder of the files; makes missing files (default .)",
       [&](std::string_view text) { return options.directory = text, Status{}; }},
      {"--extents", "N", "Extents of the file (default: small-miss 200000, buffer-pool 81920)",
       [&](std::string_view text) {
         return set_number(options.extents.emplace(), "--extents", text, std::uint64_t{16},
                           std::uint64_t{1} << 30);
       }},
      {"--budget", "BYTES",
       "Memory for copies of a file (default: small-miss 256 MiB, buffer-pool 64 MiB)",
       bytes("--budget", options.budget)},
      {"--scan", "BYTES", "Size of the file that small-miss scans (default 1 GiB)",
       bytes("--scan", options.scan)},
  };
}

}  // namespace

Result<Options> parse_options(std::span<const char* const> arguments) {
  Options options;
  const std::vector<Option> known = table(options);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view name = arguments[i];
    const Option* found = nullptr;
    for (const Option& option : known) {
      if (option.name == name) found = &option;
    }
    if (found == nullptr) {
      return fail(ErrorCode::invalid, "no option '{}'; --help lists them", name);
    }
    if (!found->value.empty() && ++i == arguments.size()) {
      return fail(ErrorCode::invalid, "{} needs {}", name, found->value);
    }
    HEADRACE_TRY_STATUS(found->set(arguments[i]));
  }
  return options;
}

std::string help_text() {
  std::string text =
      "Usage: headrace-bench-cache --implementation NAME --scenario NAME [OPTION...]\n"
      "Runs one scenario once with one cache and prints the result as one line of JSON.\n"
      "`headrace bench cache` runs rounds of all scenarios and caches.\n\n";
  Options options;
  for (const Option& option : table(options)) {
    text +=
        fmt::format("  {:<24} {}\n", fmt::format("{} {}", option.name, option.value), option.about);
  }
  return text;
}

}  // namespace headrace::cache_bench
