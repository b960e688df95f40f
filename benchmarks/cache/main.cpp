// SPDX-License-Identifier: Apache-2.0
// headrace-bench-cache: runs one scenario once, with one cache. `headrace bench cache` runs all.
#include <fmt/core.h>

#include <cstdio>
#include <span>

#include "benchmarks/cache/implementations.h"
#include "benchmarks/cache/options.h"
#include "core/fail.h"

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
  const headrace::Status done = headrace::cache_bench::answer(arguments.subspan(1));
  if (done) return 0;
  fmt::print(stderr, "headrace-bench-cache: {}\n", done.error().message);
  return headrace::exit_code(done.error().code);
}
