// SPDX-License-Identifier: Apache-2.0
// The talk's key-value configurations as a model: from published curves, the same rows that a run
// on hardware gives, and which of the talk's claims they confirm.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "benchmarks/keyvalue/model/promotion.h"
#include "benchmarks/keyvalue/model/waiting_line.h"
#include "headrace/result.h"

namespace headrace::kv_bench {

// Constants of an operation, fitted once. cpu_ns and dependent_lines: an operation all in DRAM
// takes kOperationNs, and 3:1 and 1:3 are slower as in kReported. ssd_ns: both shares on SSD are.
// docs/design/workloads/kv-model.md says which results are then predictions; model_test.cpp repeats
// the fit.
inline constexpr double kOperationNs = 10'400;
inline constexpr Server kFitted{.cpu_ns = 5'700, .dependent_lines = 47, .ssd_ns = 27'870};

struct ModelOptions {
  std::string machine = "cxl-a1000";  // a preset or profile with loaded-latency curves
  std::vector<std::string> workloads = {"A", "B", "C", "D"};
  std::uint64_t records = 512'000'000;
  double value_bytes = 1024;
  unsigned threads = 7;  // of the server
  unsigned clients = 56;
  std::uint64_t seed = 1;
  std::uint64_t operations = 100'000;  // simulated, for p50 and p99
  Server server = kFitted;             // except threads
};

// A published claim about a configuration, and whether the model agrees.
struct Check {
  std::string workload;
  std::string claim;
  std::string source;
  std::string found;
  bool predicted = true;  // false: constants were fitted to it
  bool met = false;
};

struct ModelRow {
  std::string config;
  std::string workload;
  Served served;
  Latencies latencies;
  double slow_share = 0;  // of accesses; on SSD if the configuration has one
  double promoted_bytes = 0;
  double slower = 1;  // relative to all in the first memory
};

struct Modelled {
  std::vector<ModelRow> rows;
  std::vector<Check> checks;
  double first_used = 0;  // share of the first memory's maximum, used by MMEM in the first workload
};

// Errors: absent, invalid: as loaded_tiers(); also an unknown workload, or options out of range.
Result<Modelled> model(const ModelOptions& options);

nlohmann::ordered_json to_json(const Modelled& modelled, const ModelOptions& options);

}  // namespace headrace::kv_bench
