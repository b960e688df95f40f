#include "headrace/advice/cost.h"

#include <cmath>

#include "core/fail.h"

namespace headrace {
namespace {

Status check_least(double value, double least, bool itself, const char* what) {
  if (std::isfinite(value) && (itself ? value >= least : value > least)) return {};
  return fail(ErrorCode::invalid, "{} is {}; give {} {}", what, value,
              itself ? "at least" : "more than", least);
}

constexpr struct {
  const char* name;
  double ServerCost::* input;
} kInputs[] = {
    {"dram_speed", &ServerCost::dram_speed},
    {"cxl_speed", &ServerCost::cxl_speed},
    {"capacity_ratio", &ServerCost::capacity_ratio},
    {"cost_ratio", &ServerCost::cost_ratio},
};

}  // namespace

Result<ServerSaving> server_saving(const ServerCost& cost) {
  const double d = cost.dram_speed, x = cost.cxl_speed, c = cost.capacity_ratio;
  HEADRACE_TRY_STATUS(check_least(d, 1, false, "the speed in DRAM (SSD's is 1)"));
  HEADRACE_TRY_STATUS(check_least(x, 1, true, "the speed in CXL memory (SSD's is 1)"));
  HEADRACE_TRY_STATUS(check_least(c, 0, false, "the ratio of DRAM to CXL capacity"));
  HEADRACE_TRY_STATUS(check_least(cost.cost_ratio, 0, false, "the ratio of costs"));
  const double servers = c * x * (d - 1) / (x * d * (c + 1) - c * x - d);
  if (!std::isfinite(servers) || servers <= 0) {
    return fail(ErrorCode::invalid, "these speeds and ratios are beyond the model; give less");
  }
  return ServerSaving{servers, 1 - servers * cost.cost_ratio, 1 / servers};
}

Result<std::vector<CostChange>> sensitivity(const ServerCost& cost, double change) {
  HEADRACE_TRY_STATUS(check_least(change, 0, false, "the change"));
  HEADRACE_TRY(const ServerSaving base, server_saving(cost));
  static_cast<void>(base);
  std::vector<CostChange> changes;
  for (const auto& [name, input] : kInputs) {
    for (const double factor : {1 - change, 1 + change}) {
      ServerCost other = cost;
      other.*input *= factor;
      if (const auto result = server_saving(other)) {
        changes.push_back({name, other.*input, *result});
      }
    }
  }
  return changes;
}

Result<InstanceGain> instance_gain(const InstanceCost& cost) {
  HEADRACE_TRY_STATUS(check_least(cost.instance_gib, 0, false, "an instance's GiB per CPU"));
  HEADRACE_TRY_STATUS(check_least(cost.server_gib, 0, false, "the server's GiB per CPU"));
  if (!(cost.discount >= 0 && cost.discount <= 1)) {
    return fail(ErrorCode::invalid, "a discount of {}; give 0 to 1", cost.discount);
  }
  const double sold = std::min(1.0, cost.server_gib / cost.instance_gib);
  const double stranded = 1 - sold;
  return InstanceGain{stranded, stranded * (1 - cost.discount) / sold,
                      stranded * cost.instance_gib};
}

}  // namespace headrace
