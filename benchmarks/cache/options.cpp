// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/cache/options.h"

#include <limits>

#include "benchmarks/options.h"

namespace headrace::cache_bench {
namespace {

// Options that set fields of `options`, which must outlive them.
std::vector<bench::Option> table(Options& options) {
  const auto number = [](auto name, auto about, auto& field, auto least, auto most) {
    return bench::number(name, "N", about, field, least, most);
  };
  constexpr std::uint64_t kMiB = 1 << 20, kMost = std::uint64_t{1} << 40;
  return {
      bench::flag("--help", "Print this text and exit", options.help),
      bench::flag("--list", "List implementations and scenarios as JSON", options.list),
      bench::text("--implementation", "NAME", "Cache to run", options.implementation),
      bench::text("--scenario", "NAME", "Scenario to run", options.scenario),
      number("--threads", "Number of threads (default 1)", options.threads, 1U, 4096U),
      number("--seconds", "Time of a run, or of each part with files (default 0.1)",
             options.seconds, 0.001, 3600.0),
      number("--operations", "Operations per thread instead of a time", options.operations,
             std::uint64_t{1}, kMost),
      number("--seed", "Seed of all random numbers (default 1)", options.seed, std::uint64_t{0},
             std::numeric_limits<std::uint64_t>::max()),
      bench::flag("--tenants", "Give Headrace's cache a tenant, without files", options.tenants),
      bench::flag("--curve", "Sample accesses for a miss-ratio curve, without files",
                  options.curve),
      bench::text("--directory", "DIR", "Folder of the files; makes missing files (default .)",
                  options.directory),
      number("--extents", "Extents of the file (default: small-miss 200000, buffer-pool 81920)",
             options.extents, std::uint64_t{16}, std::uint64_t{1} << 30),
      bench::number("--budget", "BYTES",
                    "Memory for copies of a file (default: small-miss 256 MiB, buffer-pool 64 MiB)",
                    options.budget, kMiB, kMost),
      bench::number("--scan", "BYTES", "Size of the file that small-miss scans (default 1 GiB)",
                    options.scan, kMiB, kMost),
  };
}

}  // namespace

Result<Options> parse_options(std::span<const char* const> arguments) {
  Options options;
  HEADRACE_TRY(const auto rest, bench::parse(table(options), arguments));
  if (!rest.empty()) return fail(ErrorCode::invalid, "no option '--'; --help lists them");
  return options;
}

std::string help_text() {
  Options options;
  return bench::help(
      "Usage: headrace-bench-cache --implementation NAME --scenario NAME [OPTION...]\n"
      "Runs one scenario once with one cache and prints the result as one line of JSON.\n"
      "`headrace bench cache` runs rounds of all scenarios and caches. Two scenarios have\n"
      "implementations of their own. page-update (a B-tree with updates): headrace, mover, pool;\n"
      "chain (two memories): first, further, chain.\n\n",
      table(options));
}

}  // namespace headrace::cache_bench
