// What the program is told on its command line.
#pragma once

#include <span>
#include <string>

#include "headrace/result.h"
#include "workload/kv/model.h"

namespace headrace::kv_bench {

struct Options {
  bool help = false;
  ModelOptions model;
};

// Without the program's name. invalid: with what is allowed.
Result<Options> parse_options(std::span<const char* const> arguments);

// What --help prints.
std::string help_text();

}  // namespace headrace::kv_bench
