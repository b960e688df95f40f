// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/keyvalue/model/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "benchmarks/keyvalue/model/claims.h"
#include "core/fail.h"
#include "headrace/profile.h"

namespace headrace::kv_bench {
namespace {

constexpr double kPageBytes = 4096;

struct Configuration {
  std::string_view name;
  Shares shares;  // of pages, and of accesses if no pages move
};

constexpr std::array kConfigurations = {
    Configuration{"MMEM", {}},
    Configuration{"MMEM-SSD-0.2", {.ssd = 0.2}},
    Configuration{"MMEM-SSD-0.4", {.ssd = 0.4}},
    Configuration{"3:1", {.slow = 0.25}},
    Configuration{"1:1", {.slow = 0.5}},
    Configuration{"1:3", {.slow = 0.75}},
    Configuration{"CXL", {.slow = 1}},
};

// One workload on the two memories.
class Rows {
 public:
  Rows(const ModelOptions& options, const Workload& workload, std::vector<Tier> tiers)
      : options_(options),
        workload_(workload),
        tiers_(std::move(tiers)),
        server_(options.server),
        lines_(lines_of(workload, options.server, options.value_bytes)) {
    server_.threads =
        std::min(options.threads, options.clients);  // each client sends one request at a time
  }

  Result<std::vector<ModelRow>> run() {
    std::vector<ModelRow> rows;
    for (const auto& [name, shares] : kConfigurations) rows.push_back(row(name, shares));
    rows.push_back(hot_promote());
    HEADRACE_TRY(const Spread best,
                 best_spread(tiers_, {.lines = rows.front().served.lines_in_flight}));
    rows.push_back(row("best share", {.slow = best.share[1]}));
    const double fastest = rows.front().served.ops_per_second;
    for (ModelRow& each : rows) each.slower = fastest / each.served.ops_per_second;
    return rows;
  }

 private:
  ModelRow row(std::string_view name, const Shares& shares) const {
    const Served served = serve(tiers_, server_, lines_, shares);
    return {.config = std::string(name),
            .workload = std::string(1, workload_.name),
            .served = served,
            .latencies = wait_in_line(served, shares, server_.threads,
                                      {.clients = options_.clients,
                                       .operations = options_.operations,
                                       .seed = options_.seed}),
            .slow_share = shares.slow + shares.ssd};
  }

  ModelRow hot_promote() const {
    const double per_page = std::max(1.0, kPageBytes / options_.value_bytes);
    const auto groups = page_groups(workload_, options_.records, per_page);
    PromotionOptions promotion{.page_bytes = per_page * options_.value_bytes};
    if (workload_.inserts) promotion.insertions_per_operation = 1 - workload_.reads;
    const auto speed = [&](double slow) {
      return serve(tiers_, server_, lines_, {.slow = slow}).ops_per_second;
    };
    const Promoted promoted = promote(groups, promotion, speed);
    ModelRow made = row("Hot-Promote", {.slow = promoted.slow_share});
    made.promoted_bytes = promoted.bytes;
    return made;
  }

  const ModelOptions& options_;
  const Workload& workload_;
  std::vector<Tier> tiers_;
  Server server_;
  LinesPerOperation lines_;
};

// The nearest memory, and the nearest of another kind; if all are of one kind, the next.
Result<std::vector<Tier>> two_tiers(const Profile& profile, const std::string& mix) {
  HEADRACE_TRY(std::vector<Tier> tiers, loaded_tiers(profile, {.mix = mix}));
  const auto kind = [&](const Tier& tier) { return profile.machine.find(tier.node)->kind; };
  auto other = std::ranges::find_if(
      tiers, [&](const Tier& tier) { return kind(tier) != kind(tiers.front()); });
  if (other == tiers.end()) other = tiers.begin() + 1;
  return std::vector<Tier>{tiers.front(), *other};
}

Status check_range(const char* what, double value, double least, double most) {
  if (value >= least && value <= most) return {};
  return fail(ErrorCode::invalid, "{} {}: give {} to {}", what, value, least, most);
}

Status check(const ModelOptions& options) {
  HEADRACE_TRY_STATUS(check_range("records", static_cast<double>(options.records), 1000, 1e11));
  HEADRACE_TRY_STATUS(check_range("a value's bytes", options.value_bytes, 1, 1 << 20));
  HEADRACE_TRY_STATUS(check_range("threads", options.threads, 1, 1e5));
  return check_range("clients", options.clients, 1, 1e5);
}

}  // namespace

Result<Modelled> model(const ModelOptions& options) {
  HEADRACE_TRY_STATUS(check(options));
  HEADRACE_TRY(const Profile profile, Profile::load(options.machine));
  Modelled modelled;
  for (const std::string& name : options.workloads) {
    const Workload* const workload = find_workload(name);
    if (workload == nullptr) {
      return fail(ErrorCode::absent, "no workload '{}'; there are A, B, C, D", name);
    }
    const auto lines = lines_of(*workload, options.server, options.value_bytes);
    HEADRACE_TRY(std::vector<Tier> tiers, two_tiers(profile, lines.mix));
    HEADRACE_TRY(auto rows, Rows(options, *workload, tiers).run());
    const double used = rows.front().served.fast_used;
    const auto checks = check_claims(rows);
    modelled.checks.insert(modelled.checks.end(), checks.begin(), checks.end());
    modelled.checks.push_back(check_reversal(*workload, options, tiers));
    if (modelled.rows.empty()) modelled.first_used = used;
    std::ranges::move(rows, std::back_inserter(modelled.rows));
  }
  return modelled;
}

nlohmann::ordered_json to_json(const Modelled& modelled, const ModelOptions& options) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array(), checks = rows;
  for (const ModelRow& row : modelled.rows) {
    rows.push_back({{"config", row.config},
                    {"workload", row.workload},
                    {"ops_per_second", row.served.ops_per_second},
                    {"p50_us", row.latencies.p50_us},
                    {"p99_us", row.latencies.p99_us},
                    {"slow_share", row.slow_share},
                    {"promoted_bytes", row.promoted_bytes},
                    {"slower", row.slower},
                    {"first_memory_used", row.served.fast_used},
                    {"basis", "modelled"}});
  }
  for (const Check& check : modelled.checks) {
    checks.push_back({{"workload", check.workload},
                      {"claim", check.claim},
                      {"source", check.source},
                      {"found", check.found},
                      {"predicted", check.predicted},
                      {"met", check.met}});
  }
  return {{"machine", options.machine},
          {"threads", options.threads},
          {"clients", options.clients},
          {"records", options.records},
          {"value_bytes", options.value_bytes},
          {"seed", options.seed},
          {"fitted",
           {{"cpu_ns", options.server.cpu_ns},
            {"dependent_lines", options.server.dependent_lines},
            {"ssd_ns", options.server.ssd_ns}}},
          {"rows", rows},
          {"checks", checks}};
}

}  // namespace headrace::kv_bench
