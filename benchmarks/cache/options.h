// SPDX-License-Identifier: Apache-2.0
// The command line of the program.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "headrace/result.h"
#include "headrace/units.h"

namespace headrace::cache_bench {

struct Options {
  bool help = false;
  bool list = false;  // list instead of running
  std::string implementation;
  std::string scenario;
  unsigned threads = 1;
  double seconds = 0.1;
  std::uint64_t operations = 0;  // per thread, instead of seconds
  std::uint64_t seed = 1;
  // Headrace's cache counts accesses for a tenant, or samples them, in scenarios in memory.
  bool tenants = false;
  bool curve = false;
  // For scenarios on files. Nothing: as in the scenario.
  std::filesystem::path directory = ".";
  std::optional<std::uint64_t> extents;
  std::optional<Bytes> budget;
  std::optional<Bytes> scan;
};

// Arguments without the program's name. Errors: invalid: with the allowed values.
Result<Options> parse_options(std::span<const char* const> arguments);

// The text of --help.
std::string help_text();

}  // namespace headrace::cache_bench
