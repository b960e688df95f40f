// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "topology/topology.h"

namespace headrace {
namespace {

// Two cores of two threads each, with caches per core and one shared cache.
Machine machine_with_caches() {
  Machine machine{.name = "cached"};
  machine.nodes = {{.id = NodeId{0}, .kind = NodeKind::dram, .cpus = {0, 1, 2, 3}},
                   {.id = NodeId{1}, .kind = NodeKind::dram, .cpus = {4}}};
  machine.nodes[0].distances = {{NodeId{0}, 10}, {NodeId{1}, 32}};
  machine.caches = {{.level = 1, .size = 32_KiB, .cpus = {0, 2}},
                    {.level = 1, .size = 32_KiB, .cpus = {1, 3}},
                    {.level = 3, .size = 32_MiB, .cpus = {0, 1, 2, 3}}};
  return machine;
}

TEST(MachineTablesTest, TablesMatchASearch) {
  const Machine machine = machine_with_caches();
  const auto facts = [&] {
    std::vector<const void*> found;
    for (unsigned cpu = 0; cpu < 6; ++cpu) {
      found.push_back(last_level_cache(machine, cpu));
      for (const CacheLevel* cache : first_level_caches(machine, cpu)) found.push_back(cache);
      found.push_back(nullptr);
    }
    return std::pair(found, socket_reach(machine));
  };
  const auto searched = facts();
  EXPECT_EQ(searched.second, 10U);
  const MachineTables tables(machine);
  EXPECT_EQ(MachineTables::of(machine), &tables);
  EXPECT_EQ(facts(), searched);
}

TEST(MachineTablesTest, TablesServeOneMachineWhileTheyExist) {
  const Machine machine = machine_with_caches();
  const Machine other = machine;
  {
    const MachineTables tables(machine);
    EXPECT_EQ(MachineTables::of(other), nullptr);
    {
      const MachineTables of_other(other);
      EXPECT_EQ(MachineTables::of(machine), nullptr);
      EXPECT_EQ(last_level_cache(machine, 1), &machine.caches[2]);
    }
    EXPECT_EQ(MachineTables::of(machine), &tables);
  }
  const std::uint64_t before = MachineTables::searches();
  EXPECT_EQ(MachineTables::of(machine), nullptr);
  EXPECT_EQ(MachineTables::searches(), before + 1);
}

}  // namespace
}  // namespace headrace
