// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/cache/implementations.h"

#include <algorithm>
#include <array>

#include "benchmarks/cache/chain_scenario.h"
#include "benchmarks/cache/page_update.h"
#include "benchmarks/cache/stores/chase_store.h"
#include "benchmarks/cache/stores/headrace_store.h"
#include "benchmarks/cache/stores/sharded_store.h"
#include "benchmarks/cache/stores/thesis_store.h"
#include "core/fail.h"
#ifdef HEADRACE_WITH_TBB
#include "benchmarks/cache/stores/tbb_store.h"
#endif
#ifdef HEADRACE_WITH_ROCKSDB
#include "benchmarks/cache/stores/rocksdb_store.h"
#endif

namespace headrace::cache_bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr auto kImplementations = std::to_array<Implementation>({
    {.name = "headrace",
     .about = "headrace::Cache",
     .run = run_scenario<HeadraceStore>,
     .run_on_file = run_file_scenario<HeadraceStore>},
    {.name = "headrace-16",
     .about = "the same in 16 shards",
     .run = run_scenario<HeadraceStoreIn16>,
     .run_on_file = run_file_scenario<HeadraceStoreIn16>},
    {.name = "thesis",
     .about = "std::map under a shared_mutex, counted entries, atomic wait (Fürst 2024)",
     .run = run_scenario<ThesisStore>,
     .run_on_file = run_file_scenario<ThesisStore>},
    {.name = "sharded",
     .about = "std::unordered_map and LRU in 64 shards with a mutex each, shared_ptr",
     .run = run_scenario<ShardedStore>,
     .run_on_file = run_file_scenario<ShardedStore>},
#ifdef HEADRACE_WITH_TBB
    {.name = "tbb",
     .about = "tbb::concurrent_hash_map, first in first out, shared_ptr",
     .run = run_scenario<TbbStore>,
     .run_on_file = run_file_scenario<TbbStore>},
#else
    {.name = "tbb", .about = "tbb::concurrent_hash_map", .missing = "built without oneTBB"},
#endif
#ifdef HEADRACE_WITH_ROCKSDB
    {.name = "rocksdb",
     .about = "RocksDB's HyperClockCache",
     .run = run_scenario<RocksdbStore>,
     .run_on_file = run_file_scenario<RocksdbStore>},
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
  if ((options.tenants || options.curve) && (!options.implementation.starts_with("headrace") ||
                                             find_scenario(options.scenario) == nullptr)) {
    return fail(ErrorCode::unsupported,
                "--tenants and --curve are for headrace and scenarios without files");
  }
  if (options.scenario == kPageUpdate) return run_page_update(options);
  if (options.scenario == kChain) return run_chain(options);
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
  const FileScenario* const on_file = find_file_scenario(options.scenario);
  if (scenario == nullptr && on_file == nullptr) {
    return fail(ErrorCode::absent, "no scenario '{}'; --list names them", options.scenario);
  }
  if (on_file != nullptr && found->run_on_file == nullptr) {
    return fail(ErrorCode::unsupported, "{} has no blocks of files", found->name);
  }
  Json row = {{"implementation", found->name},
              {"scenario", options.scenario},
              {"threads", options.threads}};
  HEADRACE_TRY(const Json made, on_file != nullptr ? found->run_on_file(*on_file, options)
                                                   : found->run(*scenario, options));
  row.update(made);
  return row;
}

Json list() {
  Json there = Json::array();
  for (const Implementation& each : kImplementations) {
    there.push_back({{"name", each.name},
                     {"about", each.about},
                     {"missing", each.missing},
                     {"files", each.run_on_file != nullptr}});
  }
  Json scenarios = Json::array();
  for (const Scenario& each : kScenarios) {
    scenarios.push_back({{"name", each.name}, {"about", each.about}, {"files", false}});
  }
  for (const FileScenario& each : kFileScenarios) {
    scenarios.push_back({{"name", each.name}, {"about", each.about}, {"files", true}});
  }
  return {{"implementations", there}, {"scenarios", scenarios}};
}

}  // namespace headrace::cache_bench
