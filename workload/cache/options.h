// SPDX-License-Identifier: Apache-2.0
// What the program is told on its command line.
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
  bool list = false;  // what there is, in place of a run
  std::string implementation;
  std::string scenario;
  unsigned threads = 1;
  double seconds = 0.1;
  std::uint64_t operations = 0;  // of each thread, in place of seconds
  std::uint64_t seed = 1;
  // For scenarios on files; none: as the scenario has it.
  std::filesystem::path directory = ".";
  std::optional<std::uint64_t> extents;
  std::optional<Bytes> budget;
  std::optional<Bytes> scan;
};

// Without the program's name. invalid: with what is allowed.
Result<Options> parse_options(std::span<const char* const> arguments);

// What --help prints.
std::string help_text();

}  // namespace headrace::cache_bench
