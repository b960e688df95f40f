// SPDX-License-Identifier: Apache-2.0
// The caches that can be run, by name.
#pragma once

#include <nlohmann/json.hpp>

#include <functional>
#include <span>
#include <string_view>

#include "benchmarks/cache/file_scenarios.h"
#include "benchmarks/cache/options.h"
#include "benchmarks/cache/scenarios.h"
#include "headrace/result.h"

namespace headrace::cache_bench {

struct Implementation {
  std::string_view name;
  std::string_view about;
  std::string_view missing = {};  // why this build lacks it
  Result<nlohmann::ordered_json> (*run)(const Scenario&, const Options&) = nullptr;
  // null: it reads no files
  Result<nlohmann::ordered_json> (*run_on_file)(const FileScenario&, const Options&) = nullptr;
};

// In the order of tables.
std::span<const Implementation> implementations();

// Runs one scenario as the options say. Errors: absent: no such implementation or scenario, or not
// in this build; unsupported: not this scenario with this implementation. "wrong" counts wrong
// words.
Result<nlohmann::ordered_json> run(const Options& options);

// All implementations and scenarios as JSON: names, descriptions, and why one is missing.
nlohmann::ordered_json list();

}  // namespace headrace::cache_bench
