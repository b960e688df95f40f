// SPDX-License-Identifier: Apache-2.0
#include "workload/cache/implementations.h"

#include <algorithm>
#include <array>

#include "core/fail.h"
#include "workload/cache/small_miss.h"
#include "workload/cache/stores/chase_store.h"
#include "workload/cache/stores/headrace_store.h"
#include "workload/cache/stores/sharded_store.h"
#include "workload/cache/stores/thesis_store.h"
#ifdef HEADRACE_WITH_TBB
#include "workload/cache/stores/tbb_store.h"
#endif
#ifdef HEADRACE_WITH_ROCKSDB
#include "workload/cache/stores/rocksdb_store.h"
#endif

namespace headrace::cache_bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kSmallMissAbout =
    "zipf-0.99 over 4 to 16 KiB of a file on disk, with room for an eighth; a scan beside it";

constexpr auto kImplementations = std::to_array<Implementation>({
    {.name = "headrace",
     .about = "headrace::Cache",
     .run = run_scenario<HeadraceStore>,
     .small_miss = run_small_miss<HeadraceStore>},
    {.name = "thesis",
     .about = "std::map under a shared_mutex, counted entries, atomic wait (Fuerst 2024)",
     .run = run_scenario<ThesisStore>},
    {.name = "sharded",
     .about = "std::unordered_map and LRU in 64 shards with a mutex each, shared_ptr",
     .run = run_scenario<ShardedStore>,
     .small_miss = run_small_miss<ShardedStore>},
#ifdef HEADRACE_WITH_TBB
    {.name = "tbb",
     .about = "tbb::concurrent_hash_map, first in first out, shared_ptr",
     .run = run_scenario<TbbStore>},
#else
    {.name = "tbb", .about = "tbb::concurrent_hash_map", .missing = "built without oneTBB"},
#endif
#ifdef HEADRACE_WITH_ROCKSDB
    {.name = "rocksdb",
     .about = "RocksDB's HyperClockCache",
     .run = run_scenario<RocksdbStore>,
     .small_miss = run_small_miss<RocksdbStore>},
#else
    {.name = "rocksdb",
     .about = "RocksDB's HyperClockCache",
     .missing = "built without RocksDB; on Debian: apt install librocksdb-dev, then build again"},
#endif
    {.name = "chase",
     .about = "no cache: an array of pointers to the copies, followed; the floor",
     .run = run_scenario<ChaseStore>},
});

}  // namespace

std::span<const Implementation> implementations() { return kImplementations; }

Result<Json> run(const Options& options) {
  const auto found =
      std::ranges::find(kImplementations, options.implementation, &Implementation::name);
  if (found == kImplementations.end()) {
    return fail(ErrorCode::absent, "no implementation '{}'; --list names them",
                options.implementation);
  }
  if (found->run == nullptr) {
    return fail(ErrorCode::absent, "{}: {}", found->name, found->missing);
  }
  const Scenario* const scenario = find_scenario(options.scenario);
  if (scenario == nullptr && options.scenario != kSmallMiss) {
    return fail(ErrorCode::absent, "no scenario '{}'; --list names them", options.scenario);
  }
  if (scenario == nullptr && found->small_miss == nullptr) {
    return fail(ErrorCode::unsupported, "{} has no blocks of files", found->name);
  }
  Json row = {{"implementation", found->name},
              {"scenario", options.scenario},
              {"threads", options.threads}};
  HEADRACE_TRY(const Json made,
               scenario != nullptr ? found->run(*scenario, options) : found->small_miss(options));
  row.update(made);
  return row;
}

Json list() {
  Json there = Json::array();
  for (const Implementation& each : kImplementations) {
    there.push_back({{"name", each.name},
                     {"about", each.about},
                     {"missing", each.missing},
                     {"files", each.small_miss != nullptr}});
  }
  Json scenarios = Json::array();
  for (const Scenario& each : kScenarios) {
    scenarios.push_back({{"name", each.name}, {"about", each.about}});
  }
  scenarios.push_back({{"name", kSmallMiss}, {"about", kSmallMissAbout}});
  return {{"implementations", there}, {"scenarios", scenarios}};
}

}  // namespace headrace::cache_bench
