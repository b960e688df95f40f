// SPDX-License-Identifier: Apache-2.0
#include "headrace/advice/cost.h"

#include <cmath>

#include "core/fail.h"

namespace headrace {
namespace {

// Bounds of speeds, ratios and memory per CPU.
constexpr double kLeastInput = 1e-6, kMostInput = 1e6;

Status check_from(double value, double least, const char* what) {
  if (value >= least && value <= kMostInput) return {};  // false for NaN
  return fail(ErrorCode::invalid, "{} is {}; give {} to {}", what, value, least, kMostInput);
}

struct Input {
  const char* name;
  double* (*of)(ServerCost&);  // nullptr: unknown
};
constexpr Input kInputs[] = {
    {"dram_speed", [](ServerCost& cost) { return &cost.dram_speed; }},
    {"cxl_speed", [](ServerCost& cost) { return &cost.cxl_speed; }},
    {"capacity_ratio", [](ServerCost& cost) { return &cost.capacity_ratio; }},
    {"cost_ratio", [](ServerCost& cost) { return cost.cost_ratio ? &*cost.cost_ratio : nullptr; }},
};

}  // namespace

Result<ServerSaving> server_saving(const ServerCost& cost) {
  const double d = cost.dram_speed, x = cost.cxl_speed, c = cost.capacity_ratio;
  HEADRACE_TRY_STATUS(check_from(d, 1, "the speed in DRAM (SSD's is 1)"));
  HEADRACE_TRY_STATUS(check_from(x, 1, "the speed in CXL memory (SSD's is 1)"));
  HEADRACE_TRY_STATUS(check_from(c, kLeastInput, "the ratio of DRAM to CXL capacity"));
  HEADRACE_TRY_STATUS(check_from(cost.cost_ratio.value_or(1), kLeastInput, "the ratio of costs"));
  if (d <= 1) return fail(ErrorCode::invalid, "DRAM is no faster than SSD; give more than 1");
  if (x > d) {
    return fail(ErrorCode::invalid, "CXL memory is no faster than DRAM; give at most {}, not {}", d,
                x);
  }
  const double servers = c * x * (d - 1) / (x * d * (c + 1) - c * x - d);
  if (!std::isfinite(servers) || servers <= 0) {
    return fail(ErrorCode::invalid, "these speeds and ratios are beyond the model; give less");
  }
  ServerSaving saving{.servers = servers, .break_even = 1 / servers};
  if (cost.cost_ratio) saving.saving = 1 - servers * *cost.cost_ratio;
  return saving;
}

Result<std::vector<CostChange>> sensitivity(const ServerCost& cost, double change) {
  HEADRACE_TRY_STATUS(check_from(change, kLeastInput, "the change"));
  HEADRACE_TRY(const ServerSaving base, server_saving(cost));
  static_cast<void>(base);
  std::vector<CostChange> changes;
  for (const auto& [name, input_of] : kInputs) {
    for (const double factor : {1 - change, 1 + change}) {
      ServerCost other = cost;
      double* const input = input_of(other);
      if (input == nullptr) continue;
      *input *= factor;
      CostChange& made = changes.emplace_back(name, *input);
      if (const auto result = server_saving(other)) {
        made.result = *result;
      } else {
        made.reason = result.error().message;
      }
    }
  }
  return changes;
}

Result<InstanceGain> instance_gain(const InstanceCost& cost) {
  HEADRACE_TRY_STATUS(check_from(cost.instance_gib, kLeastInput, "an instance's GiB per CPU"));
  HEADRACE_TRY_STATUS(check_from(cost.server_gib, kLeastInput, "the server's GiB per CPU"));
  if (cost.discount && !(*cost.discount >= 0 && *cost.discount <= 1)) {
    return fail(ErrorCode::invalid, "a discount of {}; give 0 to 1", *cost.discount);
  }
  const double sold = std::min(1.0, cost.server_gib / cost.instance_gib);
  const double stranded = 1 - sold;
  InstanceGain gain{.stranded = stranded, .cxl_gib = stranded * cost.instance_gib};
  if (cost.discount) gain.revenue = stranded * (1 - *cost.discount) / sold;
  return gain;
}

}  // namespace headrace
