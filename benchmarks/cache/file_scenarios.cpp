// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/cache/file_scenarios.h"

#include "benchmarks/cache/scenarios.h"

namespace headrace::cache_bench {
namespace {

constexpr std::uint32_t kScanned = 1 << 20;
// For each thread; more than it looks up in the warm-up seconds of a run.
constexpr std::uint64_t kLookups = 1 << 19;

nlohmann::ordered_json quantile(const Histogram& histogram, double q) {
  const std::optional<std::uint64_t> found = histogram.quantile(q);
  return found ? nlohmann::ordered_json(*found) : nlohmann::ordered_json(nullptr);
}

}  // namespace

const FileScenario* find_file_scenario(std::string_view name) {
  const auto found = std::ranges::find(kFileScenarios, name, &FileScenario::name);
  return found == kFileScenarios.end() ? nullptr : &*found;
}

Result<FileData> FileData::make(const FileScenario& scenario, const Options& options) {
  DiscoverOptions where;
  where.storage = {options.directory};
  HEADRACE_TRY(const Machine machine, Machine::discover(where));
  const auto file = [&](const char* name, const std::vector<std::uint32_t>& lengths,
                        std::uint64_t size) -> Result<Source> {
    HEADRACE_TRY_STATUS(write_words(options.directory / name, size));
    return Source::in_file(machine, options.directory / name, lengths);
  };
  Random random(options.seed);
  std::vector<std::uint32_t> lengths(options.extents.value_or(scenario.extents));
  std::uint64_t size = 0;
  for (std::uint32_t& length : lengths) {
    const std::uint64_t more = random.below(scenario.most - scenario.least + 1);
    length = kFilePage * (scenario.least + static_cast<std::uint32_t>(more));
    size += length;
  }
  HEADRACE_TRY(Source lookups, file("lookups.bin", lengths, size));
  FileData made{options.budget.value_or(scenario.budget), std::move(lookups), {}, {}};
  if (scenario.scan.value > 0) {
    const std::uint64_t scanned = options.scan.value_or(scenario.scan).value / kScanned;
    HEADRACE_TRY(made.scan, file("scan.bin", std::vector(scanned, kScanned), scanned * kScanned));
  }
  for (unsigned thread = 0; thread < options.threads; ++thread) {
    made.numbers.push_back(zipf(random, options.seed, lengths.size(), 0.99, kLookups));
  }
  return made;
}

std::int64_t over_budget(std::uint64_t before, Bytes budget) {
  return static_cast<std::int64_t>(resident_bytes()) - static_cast<std::int64_t>(before) -
         static_cast<std::int64_t>(budget.value);
}

nlohmann::ordered_json told(const FileData& data, const Part& alone, std::uint64_t misses,
                            std::int64_t over) {
  const Latencies& latencies = alone.latencies;
  nlohmann::ordered_json row = told(alone.timing, misses);
  row.update({
      {"extents", data.lookups.blocks()},
      {"budget_bytes", data.budget.value},
      {"direct", data.lookups.direct()},
      {"refused", alone.timing.tally.refused},
      {"hit_p50_ns", quantile(latencies.hits, 0.5)},
      {"hit_p99_ns", quantile(latencies.hits, 0.99)},
      {"hit_p999_ns", quantile(latencies.hits, 0.999)},
      {"hit_max_ns", latencies.longest_hit},
      {"miss_p50_ns", quantile(latencies.misses, 0.5)},
      {"miss_p99_ns", quantile(latencies.misses, 0.99)},
      {"memory_over_budget_bytes", over},
  });
  return row;
}

void add_scan(nlohmann::ordered_json& row, const FileData& data, const Part& scan,
              const Part& beside) {
  for (const Part* part : {&scan, &beside}) {
    row["wrong"] = row["wrong"].get<std::uint64_t>() + part->timing.tally.wrong;
    row["refused"] = row["refused"].get<std::uint64_t>() + part->timing.tally.refused;
  }
  row.update({
      {"scan_bytes", data.scan->blocks() * kScanned},
      {"scan_alone_bytes_per_second", scan.scan_rate},
      {"scan_beside_lookups_bytes_per_second", beside.scan_rate},
      {"lookups_beside_scan_per_second",
       static_cast<double>(beside.lookups.operations) / beside.timing.seconds},
  });
}

}  // namespace headrace::cache_bench
