// SPDX-License-Identifier: Apache-2.0
#include "workload/cache/small_miss.h"

#include <optional>

namespace headrace::cache_bench {
namespace {

constexpr std::uint32_t kPage = 4096;
constexpr std::uint32_t kScanned = 1 << 20;
// For each thread; more than it looks up in the warm seconds of a run.
constexpr std::uint64_t kLookups = 1 << 19;

nlohmann::ordered_json quantile(const Histogram& histogram, double q) {
  const std::optional<std::uint64_t> found = histogram.quantile(q);
  return found ? nlohmann::ordered_json(*found) : nlohmann::ordered_json(nullptr);
}

}  // namespace

Result<SmallMiss> SmallMiss::make(const Options& options) {
  DiscoverOptions where;
  where.storage = {options.directory};
  HEADRACE_TRY(const Machine machine, Machine::discover(where));
  Random random(options.seed);
  std::vector<std::uint32_t> lengths(options.extents);
  std::uint64_t size = 0;
  for (std::uint32_t& length : lengths) {
    length = kPage * static_cast<std::uint32_t>(1 + random.below(4));
    size += length;
  }
  const std::vector<std::uint32_t> scanned(options.scan.value / kScanned, kScanned);
  const std::filesystem::path lookups = options.directory / "lookups.bin";
  const std::filesystem::path scan = options.directory / "scan.bin";
  HEADRACE_TRY_STATUS(write_words(lookups, size));
  HEADRACE_TRY_STATUS(write_words(scan, scanned.size() * kScanned));
  HEADRACE_TRY(Source first, Source::in_file(machine, lookups, lengths));
  HEADRACE_TRY(Source second, Source::in_file(machine, scan, scanned));
  SmallMiss made{std::move(first), std::move(second), {}};
  for (unsigned thread = 0; thread < options.threads; ++thread) {
    made.numbers.push_back(zipf(random, options.seed, options.extents, 0.99, kLookups));
  }
  return made;
}

std::int64_t over_budget(std::uint64_t before, Bytes budget) {
  return static_cast<std::int64_t>(resident_bytes()) - static_cast<std::int64_t>(before) -
         static_cast<std::int64_t>(budget.value);
}

nlohmann::ordered_json told(const SmallMiss& data, const Part& alone, std::uint64_t misses,
                            std::int64_t over, const Part& scan, const Part& beside) {
  const std::uint64_t wrong =
      alone.timing.tally.wrong + scan.timing.tally.wrong + beside.timing.tally.wrong;
  const std::uint64_t refused =
      alone.timing.tally.refused + scan.timing.tally.refused + beside.timing.tally.refused;
  return {
      {"operations", alone.lookups.operations},
      {"wrong", wrong},
      {"refused", refused},
      {"misses", misses},
      {"seconds", alone.timing.seconds},
      {"thread_seconds", alone.timing.thread_seconds},
      {"cpu_seconds", alone.timing.cpu_seconds},
      {"process_seconds", alone.timing.process_seconds},
      {"direct", data.lookups.direct()},
      {"hit_p50_ns", quantile(alone.latencies.hits, 0.5)},
      {"hit_p99_ns", quantile(alone.latencies.hits, 0.99)},
      {"miss_p50_ns", quantile(alone.latencies.misses, 0.5)},
      {"miss_p99_ns", quantile(alone.latencies.misses, 0.99)},
      {"memory_over_budget_bytes", over},
      {"scan_alone_bytes_per_second", scan.scan_rate},
      {"scan_beside_bytes_per_second", beside.scan_rate},
      {"beside_ops_per_second",
       static_cast<double>(beside.lookups.operations) / beside.timing.seconds},
  };
}

}  // namespace headrace::cache_bench
