// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/query/query.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <thread>

#include "benchmarks/query/table_testing.h"
#include "core/affinity.h"
#include "headrace/backend.h"
#include "tests/support/dsa/dsa.h"

namespace headrace {
namespace {

using test::Lineitem;
using test::TempDirectory;

constexpr QueryMode kModes[] = {QueryMode::resident, QueryMode::direct, QueryMode::mmap,
                                QueryMode::prefetch};
// A multiple of nothing: the last chunk is odd, and its blocks end off every boundary.
constexpr std::size_t kRows = 50'021;

class QueryTest : public testing::Test {
 protected:
  static QueryOptions options_for(const Machine& machine) {
    QueryOptions options;
    options.slow = machine.of_kind(NodeKind::storage).at(0)->id;
    options.fast = machine.of_kind(NodeKind::dram).at(0)->id;
    options.block = 32_KiB;  // 8192 rows of the widest column: seven chunks
    options.budget = 4_MiB;
    return options;
  }

  Result<QueryRun> run(QueryOptions options) { return run_query(table_, mover_, options); }

  TempDirectory directory_;
  Machine machine_ = Machine::discover({.storage = {directory_.path()}}).value();
  Lineitem lineitem_{directory_.path(), kRows};
  Table table_ = Table::open(machine_, directory_.path()).value();
  Backends backends_ = Backends::open(machine_).value();
  Mover mover_{machine_, backends_};
  QueryOptions options_ = options_for(machine_);
};

TEST_F(QueryTest, EveryModeGivesTheAnswerOfThePlainLoop) {
  for (const std::string& query : query_names()) {
    const Answer expected = lineitem_.answer(query);
    for (const QueryMode mode : kModes) {
      for (const auto& [threads, aggregators] : {std::pair{1u, 0u}, {3u, 0u}, {1u, 1u}, {2u, 3u}}) {
        QueryOptions options = options_;
        options.query = query;
        options.mode = mode;
        options.threads = threads;
        options.aggregators = aggregators;
        const auto outcome = run(options);
        ASSERT_TRUE(outcome.has_value()) << outcome.error().message;
        EXPECT_EQ(outcome->answer, expected)
            << query << " " << to_string(mode) << " " << threads << "+" << aggregators;
      }
    }
  }
}

TEST_F(QueryTest, BlocksOfAnySizeGiveTheSameAnswer) {
  for (const Bytes block : {4_KiB, 16_KiB, 100'000_B, 64_MiB}) {
    QueryOptions options = options_;
    options.block = block;
    options.threads = 2;
    const auto outcome = run(options);
    ASSERT_TRUE(outcome.has_value()) << outcome.error().message;
    EXPECT_EQ(outcome->answer, lineitem_.answer("q6")) << to_string(block);
  }
}

TEST_F(QueryTest, EachBlockIsTracedOnceAndInOrder) {
  for (const QueryMode mode : kModes) {
    QueryOptions options = options_;
    options.mode = mode;
    options.threads = 2;
    const QueryRun outcome = run(options).value();
    std::set<std::pair<std::string, std::uint64_t>> seen;
    Bytes bytes;
    for (const BlockTrace& block : outcome.blocks) {
      EXPECT_TRUE(seen.emplace(block.column, block.chunk).second);
      bytes += block.bytes;
      EXPECT_LE(block.wait_start, block.wait_end);
      EXPECT_LE(block.wait_end, block.use_end);
      EXPECT_LE(block.use_end, outcome.time);
      const bool fetched = mode == QueryMode::direct || mode == QueryMode::prefetch;
      ASSERT_EQ(block.fetch_start.has_value(), fetched) << to_string(mode);
      ASSERT_EQ(block.fetch_end.has_value(), fetched) << to_string(mode);
      if (!fetched) continue;
      EXPECT_LE(*block.fetch_start, *block.fetch_end);
      EXPECT_LE(*block.fetch_end, block.wait_end);
    }
    EXPECT_EQ(outcome.blocks.size(), 7u * 4u);
    EXPECT_EQ(bytes, outcome.bytes);
    EXPECT_EQ(outcome.bytes, Bytes{kRows * (2 + 1 + 2 + 4)});
    EXPECT_EQ(outcome.cache.has_value(), mode == QueryMode::prefetch);
  }
}

TEST_F(QueryTest, GroupsScanTheirPartsWithCachesOfTheirOwn) {
  const std::vector<unsigned> cpus = allowed_cpus();
  for (const QueryMode mode : kModes) {
    for (const unsigned groups : {2u, 9u}) {  // more than the seven chunks
      QueryOptions options = options_;
      options.mode = mode;
      options.groups.assign(groups, {{cpus.front()}, options.slow, options.fast});
      const auto outcome = run(options);
      ASSERT_TRUE(outcome.has_value()) << outcome.error().message;
      EXPECT_EQ(outcome->answer, lineitem_.answer("q6")) << to_string(mode) << " " << groups;
      std::set<std::pair<std::string, std::uint64_t>> seen;
      for (const BlockTrace& block : outcome->blocks) seen.insert({block.column, block.chunk});
      EXPECT_EQ(seen.size(), outcome->blocks.size());
      EXPECT_EQ(seen.size(), 4 * 7U);
      if (mode != QueryMode::prefetch) continue;
      const CacheStats& cache = *outcome->cache;
      EXPECT_GE(cache.hits + cache.inflight_hits + cache.misses, 4 * 7U);
      for (const BlockTrace& block : outcome->blocks) EXPECT_TRUE(block.fetch_end.has_value());
    }
  }
  options_.groups = {{{100'000}, options_.slow, options_.fast}};
  EXPECT_EQ(run(options_).error().code, ErrorCode::unsupported);
  options_.groups = {{cpus, options_.fast, options_.slow}};
  EXPECT_EQ(run(options_).error().code, ErrorCode::invalid);
}

TEST_F(QueryTest, PrefetchedBlocksAreCounted) {
  const QueryRun outcome = run(options_).value();
  const CacheStats& cache = outcome.cache.value();
  EXPECT_EQ(cache.hits + cache.inflight_hits + cache.misses, 28u);
  EXPECT_GT(cache.prefetched, 0u);
  EXPECT_EQ(cache.wasted_bytes, 0_B);
  EXPECT_EQ(cache.failures, 0u);
  EXPECT_EQ(cache.bytes_pinned, 0_B);
}

TEST_F(QueryTest, StartsCold) {
  // Warms the page cache first. Where O_DIRECT is refused (tmpfs) nothing is ever cold.
  for (const Column& column : table_.columns()) {
    std::ifstream in(directory_.path() / (column.name + ".bin"));
    std::string all((std::istreambuf_iterator<char>(in)), {});
    EXPECT_FALSE(all.empty());
  }
  if (!table_.file("l_tax").value()->direct()) GTEST_SKIP() << "no O_DIRECT here";
  for (const QueryMode mode : kModes) {
    QueryOptions options = options_;
    options.mode = mode;
    EXPECT_EQ(run(options).value().cached_before, 0_B) << to_string(mode);
  }
}

TEST_F(QueryTest, TheFloorIsMeasured) {
  options_.block = 4_KiB;
  const auto floor = measure_transfer_floor(table_, mover_, options_);
  ASSERT_TRUE(floor.has_value()) << floor.error().message;
  EXPECT_GT(*floor, Nanoseconds{0});
}

TEST_F(QueryTest, StopIsHeardInEveryMode) {
  for (const QueryMode mode : kModes) {
    for (const int after : {0, 3}) {
      QueryOptions options = options_;
      options.mode = mode;
      options.threads = 2;
      options.block = 4_KiB;
      const auto caller = std::this_thread::get_id();
      int asked = 0;
      options.stop = [&] {
        EXPECT_EQ(std::this_thread::get_id(), caller);
        return asked++ >= after;
      };
      // The other worker may have taken all chunks before the caller asks a fourth time.
      const auto outcome = run(options);
      if (outcome) {
        EXPECT_GT(after, 0);
        continue;
      }
      EXPECT_EQ(outcome.error().code, ErrorCode::cancelled) << outcome.error().message;
    }
  }
}

TEST_F(QueryTest, AFileCutShortIsAnErrorThatNamesIt) {
  // 96 KiB of 195: the first chunks can still be read.
  std::filesystem::resize_file(directory_.path() / "l_extendedprice.bin", 96 << 10);
  for (const QueryMode mode : kModes) {
    QueryOptions options = options_;
    for (const unsigned aggregators : {0u, 2u}) {
      options.mode = mode;
      options.threads = 2;
      options.aggregators = aggregators;
      const auto outcome = run(options);
      ASSERT_FALSE(outcome.has_value()) << to_string(mode);
      EXPECT_EQ(outcome.error().code, ErrorCode::io) << outcome.error().message;
      EXPECT_NE(outcome.error().message.find("l_extendedprice.bin"), std::string::npos)
          << to_string(mode) << ": " << outcome.error().message;
    }
  }
  const auto floor = measure_transfer_floor(table_, mover_, options_);
  ASSERT_FALSE(floor.has_value());
  EXPECT_EQ(floor.error().code, ErrorCode::io);
  EXPECT_NE(floor.error().message.find("l_extendedprice.bin"), std::string::npos);
}

TEST_F(QueryTest, ABudgetBelowOneBlockIsRefusedAndOneAboveServes) {
  options_.budget = 32_KiB - 1_B;
  EXPECT_EQ(run(options_).error().code, ErrorCode::exhausted);
  // Enough for the blocks of one worker, and for one more: slow, but right.
  options_.budget = 128_KiB;
  options_.prefetch.window = 32_KiB;
  const auto outcome = run(options_);
  ASSERT_TRUE(outcome.has_value()) << outcome.error().message;
  EXPECT_EQ(outcome->answer, lineitem_.answer("q6"));
  options_.threads = 4;
  EXPECT_EQ(run(options_).error().code, ErrorCode::exhausted) << "more than one hold";
}

TEST_F(QueryTest, OptionsThatMakeNoSenseAreRefused) {
  const auto code_with = [&](auto change) {
    QueryOptions options = options_;
    change(options);
    const auto outcome = run(options);
    EXPECT_FALSE(outcome.has_value());
    return outcome.has_value() ? ErrorCode::io : outcome.error().code;
  };
  using O = QueryOptions;
  EXPECT_EQ(code_with([](O& o) { o.query = "q7"; }), ErrorCode::invalid);
  EXPECT_EQ(code_with([](O& o) { o.fast = NodeId{77}; }), ErrorCode::absent);
  EXPECT_EQ(code_with([](O& o) { o.slow = NodeId{77}; }), ErrorCode::absent);
  EXPECT_EQ(code_with([](O& o) { o.slow = o.fast; }), ErrorCode::invalid);
  EXPECT_EQ(code_with([](O& o) { o.fast = o.slow; }), ErrorCode::invalid);
  EXPECT_EQ(code_with([](O& o) { o.threads = 0; }), ErrorCode::invalid);
  EXPECT_EQ(code_with([](O& o) { o.aggregators = 1025; }), ErrorCode::invalid);
  EXPECT_EQ(code_with([](O& o) { o.block = 0_B; }), ErrorCode::invalid);
  EXPECT_EQ(code_with([](O& o) { o.block = 2_GiB; }), ErrorCode::invalid);
}

TEST_F(QueryTest, ATableWithoutRowsHasAnAnswer) {
  const TempDirectory empty;
  const Lineitem none(empty.path(), 0);
  const Table table = Table::open(machine_, empty.path()).value();
  for (const std::string& query : query_names()) {
    for (const QueryMode mode : kModes) {
      QueryOptions options = options_;
      options.query = query;
      options.mode = mode;
      options.aggregators = query == "q6" ? 1 : 0;
      const auto outcome = run_query(table, mover_, options);
      ASSERT_TRUE(outcome.has_value()) << outcome.error().message;
      EXPECT_EQ(outcome->answer, none.answer(query));
      EXPECT_TRUE(outcome->blocks.empty());
    }
  }
  EXPECT_TRUE(measure_transfer_floor(table, mover_, options_).has_value());
}

// Two memory nodes, if the machine has them, preferably of two kinds; in the guest, DRAM and HBM.
std::vector<NodeId> two_memories(const Machine& machine) {
  std::vector<const Node*> found;
  for (const Node& node : machine.nodes) {
    if (node.byte_addressable() && node.capacity.value_or(0_B) > 64_MiB) found.push_back(&node);
  }
  if (found.size() < 2) return {};
  const auto other =
      std::ranges::find_if(found, [&](const Node* node) { return node->kind != found[0]->kind; });
  return {found[0]->id, (other == found.end() ? found[1] : *other)->id};
}

TEST_F(QueryTest, MemoryIsReadInPlaceOrCached) {
  const auto memories = two_memories(machine_);
  if (memories.empty()) GTEST_SKIP() << "one memory node";
  options_.slow = memories[0];
  options_.fast = memories[1];
  for (const QueryMode mode : {QueryMode::resident, QueryMode::direct, QueryMode::prefetch}) {
    options_.mode = mode;
    const auto outcome = run(options_);
    ASSERT_TRUE(outcome.has_value()) << outcome.error().message;
    EXPECT_EQ(outcome->answer, lineitem_.answer("q6"));
  }
  EXPECT_TRUE(measure_transfer_floor(table_, mover_, options_).has_value());
  options_.mode = QueryMode::mmap;
  EXPECT_EQ(run(options_).error().code, ErrorCode::unsupported);
}

// Query-driven prefetching by eight software DSA devices between two memories; in the guest, from
// DRAM to HBM.
constexpr unsigned kDevices = 8;

// This machine with a device at each of its first nodes.
Machine with_devices(Machine machine) {
  for (unsigned i = 0; i < kDevices; ++i) {
    machine.engines.push_back({.id = EngineId{static_cast<std::uint32_t>(machine.engines.size())},
                               .kind = EngineKind::dsa,
                               .name = "dsa" + std::to_string(i),
                               .home = machine.nodes[i % machine.nodes.size()].id,
                               .reason = "test"});
  }
  return machine;
}

TEST(QueryDsa, GivesExactAnswersByEachRouteAndWithFailingDescriptors) {
  const test::TempDirectory directory;
  const Machine machine = with_devices(Machine::discover({.storage = {directory.path()}}).value());
  const auto memories = two_memories(machine);
  if (memories.empty()) GTEST_SKIP() << "one memory node; runs in the guest";
  const test::Lineitem lineitem(directory.path(), 50'021);
  const Table table = Table::open(machine, directory.path()).value();
  std::vector<EngineId> devices;
  for (const Engine& engine : machine.engines) {
    if (engine.kind == EngineKind::dsa) devices.push_back(engine.id);
  }
  QueryOptions options;
  options.slow = memories[0];
  options.fast = memories[1];
  options.block = 32_KiB;
  options.budget = 4_MiB;
  for (const double failing : {0.0, 0.01}) {
    for (const RoutePolicy& route : {RoutePolicy(place::smart), RoutePolicy(place::brute_force)}) {
      emulator::BackendOptions emulated;
      emulated.device.faults.hardware_chance = failing;
      Backends backends = Backends::open(machine).value();
      backends.add(emulator::open_backend(machine, devices, emulated).value());
      Mover mover(machine, backends, {.route = route});
      const auto run = run_query(table, mover, options);
      ASSERT_TRUE(run.has_value()) << run.error().message;
      EXPECT_EQ(run->answer, lineitem.answer("q6"));
      EXPECT_EQ(run->cache->failures, 0U);
    }
  }
}

}  // namespace
}  // namespace headrace
