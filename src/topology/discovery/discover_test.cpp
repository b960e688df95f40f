// SPDX-License-Identifier: Apache-2.0
// Discovery of other machines than this one.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "headrace/machine.h"
#include "tests/support/fake_host.h"

namespace headrace {
namespace {

using test::FakeHost;

// Two sockets of four tiles: DDR nodes 0-7 with two CPUs each, HBM nodes 8-15 without.
void build_xeon_max(FakeHost& host, bool with_hmat) {
  for (unsigned id = 0; id < 16; ++id) {
    std::string distances;
    for (unsigned other = 0; other < 16; ++other) {
      const unsigned near = id == other ? 10 : (id % 8 == other % 8 ? 13 : 14);
      distances += fmt::format("{} ", id % 8 / 4 == other % 8 / 4 ? near : 23);
    }
    const bool ddr = id < 8;
    host.add_node(id, ddr ? fmt::format("{}-{}", 2 * id, 2 * id + 1) : "", ddr ? 2_GiB : 1_GiB,
                  distances);
    if (with_hmat) host.add_access(id, id % 8, ddr ? 100 : 120, ddr ? 48 * 1024 : 130 * 1024);
    if (!ddr) continue;
    host.write(fmt::format("sys/devices/system/cpu/cpu{}/topology/physical_package_id", 2 * id),
               std::to_string(id / 4));
  }
  host.set_total(24_GiB);
}

TEST(DiscoverTest, XeonMaxByHmat) {
  FakeHost host;
  build_xeon_max(host, true);
  const auto machine = Machine::discover(host.options());
  ASSERT_TRUE(machine) << machine.error().message;
  ASSERT_EQ(machine->nodes.size(), 16u);
  EXPECT_EQ(machine->of_kind(NodeKind::dram).size(), 8u);
  EXPECT_EQ(machine->of_kind(NodeKind::hbm).size(), 8u);
  const Node& hbm = machine->nodes[13];
  EXPECT_EQ(hbm.id, NodeId{13});
  EXPECT_EQ(hbm.reason,
            "rated 140 GB/s from node 5, 2.7 x its own memory's 51.5 GB/s (HMAT in sysfs)");
  EXPECT_EQ(hbm.socket, 1u);
  EXPECT_EQ(hbm.capacity, 1_GiB);
  EXPECT_EQ(hbm.distances.at(NodeId{5}), 13u);
  ASSERT_EQ(hbm.access.size(), 1u);
  EXPECT_EQ(hbm.access[0].read_latency, Nanoseconds{120});
  EXPECT_EQ(machine->engines.size(), 8u);
  EXPECT_EQ(Machine::from_json(machine->to_json())->to_json(), machine->to_json());
  EXPECT_TRUE(machine->warnings.empty()) << machine->warnings[0];
}

// Kinds on sockets of four nodes with CPUs, without other nodes.
std::vector<NodeKind> kinds_without_other_nodes(const std::string& cpuinfo, Bytes memory) {
  FakeHost host;
  for (unsigned id = 0; id < 8; ++id) {
    host.add_node(id, std::to_string(id), memory, "10 13 13 13 23 23 23 23");
    host.write(fmt::format("sys/devices/system/cpu/cpu{}/topology/physical_package_id", id),
               std::to_string(id / 4));
  }
  host.write("proc/cpuinfo", "processor\t: 0\n" + cpuinfo);
  const auto machine = Machine::discover(host.options());
  EXPECT_TRUE(machine) << machine.error().message;
  std::vector<NodeKind> kinds;
  for (const Node& node : machine->nodes) kinds.push_back(node.kind);
  return kinds;
}

TEST(DiscoverTest, CpusWhosePackagesHaveHbmAlone) {
  const std::vector<NodeKind> hbm(8, NodeKind::hbm);
  const std::vector<NodeKind> dram(8, NodeKind::dram);
  const std::string max = "model name\t: Intel(R) Xeon(R) CPU Max 9480\n";
  EXPECT_EQ(kinds_without_other_nodes(max, 15_GiB), hbm);
  EXPECT_EQ(kinds_without_other_nodes(max, 64_GiB), dram) << "with DIMMs, HBM being their cache";
  const std::string guest = "flags\t\t: fpu hypervisor\n";
  EXPECT_EQ(kinds_without_other_nodes(max + guest, 15_GiB), dram) << "it may be DIMMs of the host";
  const std::string mi300a = "model name\t: AMD Instinct MI300A Accelerator\n";
  EXPECT_EQ(kinds_without_other_nodes(mi300a, 31_GiB), hbm);
  EXPECT_EQ(kinds_without_other_nodes(mi300a + guest, 31_GiB), hbm) << "it takes no DIMMs";
  const std::string a64fx = "CPU implementer\t: 0x46\nCPU part\t: 0x001\n";
  EXPECT_EQ(kinds_without_other_nodes(a64fx, 8_GiB), hbm);
  const std::string other = "CPU implementer\t: 0x41\nCPU part\t: 0xd4f\n";
  EXPECT_EQ(kinds_without_other_nodes(other, 8_GiB), dram);
}

TEST(DiscoverTest, XeonMaxWithoutHmat_IsKnownByItsName) {
  FakeHost host;
  build_xeon_max(host, false);
  const auto unknown = Machine::discover(host.options());
  ASSERT_TRUE(unknown);
  EXPECT_EQ(unknown->of_kind(NodeKind::cxl).size(), 8u);
  host.set_cpu_model("Intel(R) Xeon(R) CPU Max 9468");
  const auto known = Machine::discover(host.options());
  ASSERT_TRUE(known);
  EXPECT_EQ(known->of_kind(NodeKind::hbm).size(), 8u);
  EXPECT_EQ(known->provenance.at("cpu"), "Intel(R) Xeon(R) CPU Max 9468");
  ASSERT_EQ(known->warnings.size(), 1u);
  EXPECT_TRUE(known->warnings[0].starts_with("no HMAT: ")) << known->warnings[0];
  EXPECT_EQ(known->warnings[0].find("SLIT"), std::string::npos) << known->warnings[0];
}

// The kernel fills in distances like these for firmware without a SLIT.
TEST(DiscoverTest, MissingDistancesAreSaid) {
  FakeHost host;
  host.add_node(0, "0-1", 2_GiB, "10 20 20");
  host.add_node(1, "2-3", 2_GiB, "20 10 20");
  host.add_node(2, "", 1_GiB, "20 20 10");
  const auto machine = Machine::discover(host.options());
  ASSERT_TRUE(machine);
  ASSERT_EQ(machine->warnings.size(), 1u);
  EXPECT_NE(machine->warnings[0].find("without a SLIT"), std::string::npos) << machine->warnings[0];
  FakeHost with_cpus;  // nothing rests on the tables
  with_cpus.add_node(0, "0-1", 2_GiB, "10 20");
  with_cpus.add_node(1, "2-3", 2_GiB, "20 10");
  EXPECT_TRUE(Machine::discover(with_cpus.options())->warnings.empty());
}

void add_side_cache(FakeHost& host, unsigned node, unsigned index, Bytes size,
                    const std::string& indexing = "0", const std::string& policy = "0") {
  const std::string path =
      fmt::format("sys/devices/system/node/node{}/memory_side_cache/index{}/", node, index);
  host.write(path + "size", std::to_string(size.value));
  host.write(path + "line_size", "64");
  host.write(path + "indexing", indexing);
  host.write(path + "write_policy", policy);
}

TEST(DiscoverTest, HbmInCacheModeIsACacheAndNoNode) {
  FakeHost host;
  for (const unsigned node : {0U, 1U}) {
    host.add_node(node, std::to_string(node), 512_GiB, node == 0 ? "10 21" : "21 10");
    add_side_cache(host, node, 1, 64_GiB);
  }
  host.set_cpu_model("Intel(R) Xeon(R) CPU Max 9468");
  const auto machine = Machine::discover(host.options());
  ASSERT_TRUE(machine) << machine.error().message;
  EXPECT_TRUE(machine->of_kind(NodeKind::hbm).empty());
  const auto& cache = machine->nodes[1].side_cache;
  ASSERT_TRUE(cache);
  EXPECT_EQ(cache->size, 64_GiB);
  EXPECT_EQ(cache->line, 64_B);
  EXPECT_EQ(cache->indexing, "direct-mapped");
  EXPECT_EQ(cache->write_policy, "write-back");
  const std::string told =
      "HBM is in cache mode: 128 GiB before nodes 0-1, where nothing can be allocated; flat mode "
      "is "
      "set in the BIOS (Memory Hierarchy: Flat)";
  EXPECT_EQ(cache_mode(*machine), told);
  const std::string text = machine->to_text();
  EXPECT_NE(text.find("side cache 64 GiB   before the memory, direct-mapped, write-back\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("\n" + told + "\n"), std::string::npos) << text;
  const auto back = Machine::from_json(machine->to_json());
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->to_json(), machine->to_json());
  EXPECT_EQ(cache_mode(*back), told);
}

// The largest cache counts. This CPU's name does not say which memory it caches.
TEST(DiscoverTest, ASideCacheOfOtherMemory) {
  FakeHost host;
  host.add_node(0, "0-1", 512_GiB, "10");
  add_side_cache(host, 0, 1, 16_GiB, "1", "1");
  add_side_cache(host, 0, 2, 1_GiB);
  add_side_cache(host, 0, 3, 0_B);
  host.write("sys/devices/system/node/node0/memory_side_cache/index4/size", "many");
  const auto machine = Machine::discover(host.options());
  ASSERT_TRUE(machine);
  ASSERT_TRUE(machine->nodes[0].side_cache);
  EXPECT_EQ(machine->nodes[0].side_cache->size, 16_GiB);
  EXPECT_EQ(machine->nodes[0].side_cache->indexing, "indexed");
  EXPECT_EQ(machine->nodes[0].side_cache->write_policy, "write-through");
  EXPECT_TRUE(
      cache_mode(*machine).starts_with("fast memory is in cache mode: 16 GiB before node 0"))
      << cache_mode(*machine);
}

TEST(DiscoverTest, OverridesWin) {
  FakeHost host;
  build_xeon_max(host, false);
  DiscoverOptions options = host.options();
  options.headrace_nodes = "8-14=hbm";
  options.memkind_hbw_nodes = "15";
  const auto machine = Machine::discover(options);
  ASSERT_TRUE(machine) << machine.error().message;
  EXPECT_EQ(machine->of_kind(NodeKind::hbm).size(), 8u);
  EXPECT_EQ(machine->find(NodeId{8})->reason, "HEADRACE_NODES says so");
  EXPECT_EQ(machine->find(NodeId{15})->reason, "MEMKIND_HBW_NODES says so");
}

TEST(DiscoverTest, AnOverrideOfANodeThatIsNotThereIsAbsent) {
  FakeHost host;
  build_xeon_max(host, false);
  DiscoverOptions options = host.options();
  options.headrace_nodes = "16=hbm";
  const auto machine = Machine::discover(options);
  ASSERT_FALSE(machine);
  EXPECT_EQ(machine.error().code, ErrorCode::absent);
  EXPECT_EQ(machine.error().message,
            "HEADRACE_NODES names node 16, but the memory nodes are 0-15; write it like "
            "8-15=hbm,2=cxl");
  options.headrace_nodes = "8=";
  EXPECT_EQ(Machine::discover(options).error().code, ErrorCode::invalid);
}

TEST(DiscoverTest, TheEnvironmentCountsWhereNothingIsGiven) {
  FakeHost host;
  build_xeon_max(host, false);
  DiscoverOptions options = host.options();
  options.headrace_nodes.reset();
  options.memkind_hbw_nodes.reset();
  ASSERT_EQ(setenv("HEADRACE_NODES", "9=hbm", 1), 0);
  const auto machine = Machine::discover(options);
  unsetenv("HEADRACE_NODES");
  ASSERT_TRUE(machine) << machine.error().message;
  ASSERT_EQ(machine->of_kind(NodeKind::hbm).size(), 1u);
  EXPECT_EQ(machine->of_kind(NodeKind::hbm)[0]->id, NodeId{9});
}

TEST(DiscoverTest, NoNumaInformationIsOneNode) {
  FakeHost host;
  host.set_total(8_GiB);
  host.write("sys/devices/system/cpu/online", "0-3");
  const auto machine = Machine::discover(host.options());
  ASSERT_TRUE(machine);
  ASSERT_EQ(machine->nodes.size(), 1u);
  EXPECT_EQ(machine->nodes[0].kind, NodeKind::dram);
  EXPECT_EQ(machine->nodes[0].cpus, (CpuSet{0, 1, 2, 3}));
  EXPECT_EQ(machine->nodes[0].capacity, 8_GiB);
  ASSERT_EQ(machine->engines.size(), 1u);
  EXPECT_NE(machine->warnings.at(0).find("no NUMA information"), std::string::npos);
}

TEST(DiscoverTest, AnEmptyHostIsStillAMachine) {
  FakeHost host;
  const auto machine = Machine::discover(host.options());
  ASSERT_TRUE(machine);
  ASSERT_EQ(machine->nodes.size(), 1u);
  EXPECT_EQ(machine->nodes[0].capacity, std::nullopt);
  EXPECT_TRUE(machine->engines.empty());
}

TEST(DiscoverTest, ANodeWithoutMemoryOnlineIsLeftOut) {
  FakeHost host;
  host.add_node(0, "0-1", 2_GiB, "10 20");
  host.add_node(1, "", 0_B, "20 10");
  const auto machine = Machine::discover(host.options());
  ASSERT_TRUE(machine);
  ASSERT_EQ(machine->nodes.size(), 1u);
  EXPECT_FALSE(machine->nodes[0].distances.contains(NodeId{1}));
  EXPECT_NE(machine->warnings.at(0).find("node 1 has no memory online"), std::string::npos);
}

TEST(DiscoverTest, NodesWithCpusOnly_AreAnErrorThatNamesThem) {
  FakeHost host;
  host.add_node(2, "0-1", 0_B, "10 20");
  host.add_node(3, "2-3", 0_B, "20 10");
  const auto machine = Machine::discover(host.options());
  ASSERT_FALSE(machine);
  EXPECT_EQ(machine.error().code, ErrorCode::io);
  EXPECT_EQ(machine.error().message,
            "no memory found: node 2 has CPUs online, and the capacity of every node is 0 (node "
            "meminfo); compare MemTotal of /proc/meminfo and of "
            "/sys/devices/system/node/node2/meminfo");
}

TEST(DiscoverTest, ANodeWithCpusOnlyAmongOthers_IsKept) {
  FakeHost host;
  host.add_node(0, "0-1", 2_GiB, "10 20");
  host.add_node(1, "2-3", 0_B, "20 10");
  const auto machine = Machine::discover(host.options());
  ASSERT_TRUE(machine) << machine.error().message;
  ASSERT_EQ(machine->nodes.size(), 2u);
  EXPECT_EQ(machine->nodes[1].capacity, 0_B);
}

TEST(DiscoverTest, ThisMachineIsDiscovered) {
  const auto machine = Machine::discover({.headrace_nodes = "", .memkind_hbw_nodes = ""});
  ASSERT_TRUE(machine) << machine.error().message;
  EXPECT_EQ(machine->source, "discovered");
  ASSERT_FALSE(machine->nodes.empty());
  for (const Node& node : machine->nodes) EXPECT_FALSE(node.reason.empty());
  EXPECT_TRUE(std::ranges::any_of(machine->nodes,
                                  [](const Node& node) {
                                    return node.kind == NodeKind::dram && node.capacity &&
                                           *node.capacity > 16_MiB;
                                  }))
      << "this test itself runs from DRAM\n"
      << machine->to_text();
  for (std::size_t i = 0; i < machine->engines.size(); ++i) {
    EXPECT_EQ(raw(machine->engines[i].id), i);
    EXPECT_NE(machine->find(machine->engines[i].home), nullptr);
  }
  EXPECT_TRUE(Machine::from_json(machine->to_json()));
}

// Also where a DSA device would need a home.
TEST(DiscoverTest, HostWithoutMemory_IsAnError) {
  FakeHost host;
  host.add_node(0, "", 0_B, "10");
  host.set_total(16_GiB);
  host.write("sys/bus/dsa/devices/dsa0/state", "enabled");
  host.write("sys/bus/dsa/devices/dsa0/wq0.0/state", "enabled");
  host.write("sys/bus/dsa/devices/dsa0/wq0.0/type", "user");
  const auto machine = Machine::discover(host.options());
  ASSERT_FALSE(machine);
  EXPECT_EQ(machine.error().code, ErrorCode::absent);
}

}  // namespace
}  // namespace headrace
