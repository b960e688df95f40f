// Discovery shown other machines than this one.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "headrace/machine.h"
#include "topology/fake_host.h"

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
            "rated 139.6 GB/s from node 5, 2.7 x its own memory's 51.5 GB/s (HMAT in sysfs)");
  EXPECT_EQ(hbm.socket, 1u);
  EXPECT_EQ(hbm.capacity, 1_GiB);
  EXPECT_EQ(hbm.distances.at(NodeId{5}), 13u);
  ASSERT_EQ(hbm.access.size(), 1u);
  EXPECT_EQ(hbm.access[0].read_latency, Nanoseconds{120});
  EXPECT_EQ(machine->engines.size(), 8u);
  EXPECT_TRUE(machine->warnings.empty()) << machine->warnings[0];
}

TEST(DiscoverTest, XeonMaxWithoutHmatIsToldByItsName) {
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

TEST(DiscoverTest, CxlMemoryIsSeenBehindItsDaxDevice) {
  FakeHost host;
  host.add_node(0, "0-1", 2_GiB, "10 20");
  host.add_node(1, "", 512_MiB, "20 10");
  host.set_total(2_GiB + 512_MiB);
  const std::string device =
      "sys/devices/platform/ACPI0017:00/root0/decoder0.0/region0/dax_region0/dax0.0";
  host.write(device + "/target_node", "1");
  host.link("sys/bus/dax/devices/dax0.0", device);
  const auto machine = Machine::discover(host.options());
  ASSERT_TRUE(machine) << machine.error().message;
  const Node& cxl = machine->nodes[1];
  EXPECT_EQ(cxl.kind, NodeKind::cxl);
  EXPECT_EQ(cxl.reason, "memory of dax0.0 in CXL region0");
  EXPECT_TRUE(cxl.cpus.empty());
  // Only the node with CPUs has an engine, which serves both.
  ASSERT_EQ(machine->engines.size(), 1u);
  EXPECT_TRUE(can_copy(machine->engines[0], machine->nodes[0], cxl));
}

TEST(DiscoverTest, PersistentMemoryIsNotTakenForACxlRegion) {
  FakeHost host;
  host.add_node(0, "0-1", 2_GiB, "10 20");
  host.add_node(1, "", 512_MiB, "20 10");
  const std::string device = "sys/devices/LNXSYSTM:00/ndbus0/region0/dax0.0";
  host.write(device + "/target_node", "1");
  host.link("sys/bus/dax/devices/dax0.0", device);
  const auto machine = Machine::discover(host.options());
  ASSERT_TRUE(machine);
  EXPECT_NE(machine->nodes[1].reason.find("persistent memory (dax0.0 on ndbus0)"),
            std::string::npos)
      << machine->nodes[1].reason;
}

TEST(DiscoverTest, TheKernelsTiersTellFasterMemory) {
  FakeHost host;
  host.add_node(0, "0-1", 2_GiB, "10 20 20");
  host.add_node(1, "", 1_GiB, "20 10 20");
  host.add_node(2, "", 1_GiB, "20 20 10");
  host.write("sys/devices/virtual/memory_tiering/memory_tier1/nodelist", "1");
  host.write("sys/devices/virtual/memory_tiering/memory_tier4/nodelist", "0");
  host.write("sys/devices/virtual/memory_tiering/memory_tier22/nodelist", "2");
  const auto machine = Machine::discover(host.options());
  ASSERT_TRUE(machine);
  EXPECT_EQ(machine->nodes[1].kind, NodeKind::hbm);
  EXPECT_EQ(machine->nodes[2].kind, NodeKind::cxl);
  EXPECT_NE(machine->nodes[2].reason.find("in a slower tier of the kernel"), std::string::npos);
}

TEST(DiscoverTest, Access0StandsInOnOlderKernels) {
  FakeHost host;
  host.add_node(0, "0-1", 2_GiB, "10 20");
  host.add_node(1, "", 1_GiB, "20 10");
  host.add_access(0, 0, 100, 40'000, 0);
  host.add_access(1, 0, 120, 120'000, 0);
  const auto machine = Machine::discover(host.options());
  ASSERT_TRUE(machine);
  EXPECT_EQ(machine->nodes[1].kind, NodeKind::hbm);
}

TEST(DiscoverTest, OneNodeWithALyingMeminfo) {
  FakeHost host;
  host.add_node(0, "0-1", 4_GiB, "10");
  host.set_total(24_GiB);
  const auto machine = Machine::discover(host.options());
  ASSERT_TRUE(machine);
  EXPECT_EQ(machine->nodes[0].capacity, 24_GiB);
  EXPECT_EQ(machine->nodes[0].capacity_source, "/proc/meminfo (node meminfo says 4 GiB)");
  ASSERT_EQ(machine->warnings.size(), 1u);
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

TEST(DiscoverTest, BrokenFilesLeaveFactsOut) {
  FakeHost host;
  host.add_node(0, "garbage", 2_GiB, "x");
  host.write("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal: many kB");
  host.write("sys/devices/system/node/node0/access1/initiators/read_latency", "-5");
  host.write("sys/devices/system/node/nodeX/cpulist", "0");
  host.write("sys/devices/system/cpu/cpu0/cache/index0/level", "seven");
  host.write("sys/bus/dax/devices/dax0.0/target_node", "-1");
  host.write("sys/devices/virtual/memory_tiering/memory_tier4/nodelist", "?");
  const auto machine = Machine::discover(host.options());
  ASSERT_TRUE(machine);
  ASSERT_EQ(machine->nodes.size(), 1u);
  EXPECT_TRUE(machine->nodes[0].cpus.empty());
  EXPECT_TRUE(machine->nodes[0].distances.empty());
  EXPECT_EQ(machine->nodes[0].capacity, std::nullopt);
}

TEST(DiscoverTest, UnreadableFilesLeaveFactsOut) {
  if (geteuid() == 0) GTEST_SKIP() << "root reads everything";
  FakeHost host;
  host.add_node(0, "0-1", 2_GiB, "10");
  const auto node = host.at("sys/devices/system/node/node0");
  std::filesystem::permissions(node / "cpulist", std::filesystem::perms::none);
  std::filesystem::permissions(node / "meminfo", std::filesystem::perms::none);
  const auto machine = Machine::discover(host.options());
  ASSERT_TRUE(machine);
  EXPECT_TRUE(machine->nodes[0].cpus.empty());
  EXPECT_EQ(machine->nodes[0].capacity, std::nullopt);
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

TEST(DiscoverTest, CachesComeOnceEach) {
  FakeHost host;
  host.add_node(0, "0-1", 2_GiB, "10");
  for (const int cpu : {0, 1}) {
    const std::string cache = fmt::format("sys/devices/system/cpu/cpu{}/cache/", cpu);
    const auto add = [&](int index, const char* type, int level, const char* size,
                         std::string cpus) {
      const std::string directory = fmt::format("{}index{}/", cache, index);
      host.write(directory + "type", type);
      host.write(directory + "level", std::to_string(level));
      host.write(directory + "size", size);
      host.write(directory + "shared_cpu_list", cpus);
    };
    add(0, "Data", 1, "32K", std::to_string(cpu));
    add(1, "Instruction", 1, "32K", std::to_string(cpu));
    add(2, "Unified", 3, "32M", "0-1");
  }
  const auto machine = Machine::discover(host.options());
  ASSERT_TRUE(machine);
  ASSERT_EQ(machine->caches.size(), 3u);
  EXPECT_EQ(last_level_cache(*machine, 1), 32_MiB);
}

TEST(DiscoverTest, DsaNeedsAWorkQueueForUsers) {
  FakeHost host;
  host.add_node(0, "0-1", 2_GiB, "10 20");
  host.add_node(1, "2-3", 2_GiB, "20 10");
  for (const int id : {0, 1, 2}) {
    const std::string dsa = fmt::format("sys/bus/dsa/devices/dsa{}/", id);
    host.write(dsa + "state", id == 2 ? "disabled" : "enabled");
    host.write(dsa + "numa_node", id == 0 ? "1" : "-1");
    host.write(dsa + fmt::format("wq{}.0/state", id), "enabled");
    host.write(dsa + fmt::format("wq{}.0/type", id), id == 1 ? "kernel" : "user");
  }
  const auto machine = Machine::discover(host.options());
  ASSERT_TRUE(machine);
  ASSERT_EQ(machine->engines.size(), 3u);
  EXPECT_EQ(machine->engines[2].kind, EngineKind::dsa);
  EXPECT_EQ(machine->engines[2].name, "dsa0");
  EXPECT_EQ(machine->engines[2].home, NodeId{1});
  EXPECT_EQ(machine->engines[2].reason, "1 work queue for users, at node 1");
  ASSERT_EQ(machine->warnings.size(), 2u);
  EXPECT_NE(machine->warnings[0].find("accel-config"), std::string::npos);
}

TEST(DiscoverTest, GpusAreSeenByPciClassAndVendor) {
  FakeHost host;
  host.add_node(0, "0-1", 2_GiB, "10");
  const auto add = [&](const std::string& address, const char* vendor, const char* code) {
    host.write("sys/bus/pci/devices/" + address + "/vendor", vendor);
    host.write("sys/bus/pci/devices/" + address + "/class", code);
  };
  add("0000:17:00.0", "0x10de", "0x030200");
  add("0000:03:00.0", "0x1a03", "0x030000");  // a management controller
  add("0000:18:00.0", "0x10de", "0x040300");  // a GPU's sound
  const auto machine = Machine::discover(host.options());
  ASSERT_TRUE(machine);
  ASSERT_EQ(machine->nodes.size(), 2u);
  EXPECT_EQ(machine->nodes[1].id, NodeId{2000});
  EXPECT_EQ(machine->nodes[1].kind, NodeKind::gpu);
  EXPECT_EQ(machine->nodes[1].name, "NVIDIA GPU 0000:17:00.0");
  EXPECT_EQ(machine->nodes[1].capacity, std::nullopt);
}

TEST(DiscoverTest, MigrationNeedsTwoMemoriesAndTheKernel) {
  const auto migrates = [](FakeHost& host) {
    const auto machine = Machine::discover(host.options());
    return std::ranges::any_of(machine->engines,
                               [](const Engine& e) { return e.kind == EngineKind::migrate; });
  };
  FakeHost host;
  host.add_node(0, "0-1", 2_GiB, "10");
  host.write("proc/vmstat", "nr_free_pages 1\npgmigrate_success 0");
  EXPECT_FALSE(migrates(host));
  host.add_node(1, "", 2_GiB, "20 10");
  EXPECT_TRUE(migrates(host));
  host.write("proc/vmstat", "nr_free_pages 1");
  EXPECT_FALSE(migrates(host));
}

TEST(DiscoverTest, WhateverIsDiscoveredComesBackFromJson) {
  FakeHost host;
  build_xeon_max(host, true);
  const auto machine = Machine::discover(host.options());
  ASSERT_TRUE(machine);
  const auto back = Machine::from_json(machine->to_json());
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->to_json(), machine->to_json());
}

TEST(DiscoverTest, ThisMachineIsDiscovered) {
  const auto machine = Machine::discover({.headrace_nodes = "", .memkind_hbw_nodes = ""});
  ASSERT_TRUE(machine) << machine.error().message;
  EXPECT_EQ(machine->source, "discovered");
  ASSERT_FALSE(machine->nodes.empty());
  for (const Node& node : machine->nodes) EXPECT_FALSE(node.reason.empty());
  for (std::size_t i = 0; i < machine->engines.size(); ++i) {
    EXPECT_EQ(raw(machine->engines[i].id), i);
    EXPECT_NE(machine->find(machine->engines[i].home), nullptr);
  }
  EXPECT_TRUE(Machine::from_json(machine->to_json()));
}

TEST(HwlocTest, ExportsThisMachineWithKindsAndReadsItBack) {
  const auto machine =
      Machine::discover({.storage = {}, .headrace_nodes = "0=hbm", .memkind_hbw_nodes = ""});
  if (!machine) GTEST_SKIP() << "no node 0 here: " << machine.error().message;
  const auto xml = to_hwloc_xml(*machine);
  ASSERT_TRUE(xml) << xml.error().message;
  EXPECT_NE(xml->find("subtype=\"HBM\""), std::string::npos);

  FakeHost files;
  files.write("machine.xml", *xml);
  const auto back = Machine::discover({.hwloc_xml = files.at("machine.xml"),
                                       .storage = {},
                                       .headrace_nodes = "",
                                       .memkind_hbw_nodes = ""});
  ASSERT_TRUE(back) << back.error().message;
  ASSERT_NE(back->find(NodeId{0}), nullptr);
  EXPECT_EQ(back->find(NodeId{0})->kind, NodeKind::hbm);
  EXPECT_EQ(back->find(NodeId{0})->reason, "hwloc calls it HBM");
  EXPECT_EQ(back->name, "machine");
  const auto again = to_hwloc_xml(*back);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::unsupported);
}

TEST(HwlocTest, BadXmlIsAnError) {
  FakeHost files;
  DiscoverOptions options{.hwloc_xml = files.at("none.xml"), .storage = {}, .headrace_nodes = ""};
  EXPECT_EQ(Machine::discover(options).error().code, ErrorCode::absent);
  files.write("bad.xml", "<topology><object type=\"Mach");
  options.hwloc_xml = files.at("bad.xml");
  EXPECT_EQ(Machine::discover(options).error().code, ErrorCode::invalid);
}

}  // namespace
}  // namespace headrace
