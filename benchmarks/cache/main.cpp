// SPDX-License-Identifier: Apache-2.0
// headrace-bench-cache: runs one scenario once, with one cache. `headrace bench cache` runs all.
#include "benchmarks/cache/implementations.h"
#include "benchmarks/cache/options.h"
#include "benchmarks/options.h"

namespace headrace::cache_bench {
namespace {

Status answer(std::span<const char* const> arguments) {
  HEADRACE_TRY(const Options options, parse_options(arguments));
  if (options.help) {
    fmt::print("{}", help_text());
    return {};
  }
  if (options.list) {
    fmt::print("{}\n", list().dump());
    return {};
  }
  HEADRACE_TRY(const nlohmann::ordered_json row, run(options));
  fmt::print("{}\n", row.dump());
  return {};
}

}  // namespace
}  // namespace headrace::cache_bench

int main(int argc, char** argv) {
  const std::span<const char* const> arguments(argv, static_cast<std::size_t>(argc));
  return headrace::bench::exit_code("headrace-bench-cache",
                                    headrace::cache_bench::answer(arguments.subspan(1)));
}
