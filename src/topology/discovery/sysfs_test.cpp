// SPDX-License-Identifier: Apache-2.0
#include "topology/discovery/facts.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/support/fake_host.h"

namespace headrace {
namespace {

using test::FakeHost;

TEST(SysfsTest, CxlMemoryIsSeenBehindItsDaxDevice) {
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

TEST(SysfsTest, PersistentMemoryIsNotTakenForACxlRegion) {
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

TEST(SysfsTest, TheKernelsTiersTellFasterMemory) {
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

TEST(SysfsTest, Access0StandsInOnOlderKernels) {
  FakeHost host;
  host.add_node(0, "0-1", 2_GiB, "10 20");
  host.add_node(1, "", 1_GiB, "20 10");
  host.add_access(0, 0, 100, 40'000, 0);
  host.add_access(1, 0, 120, 120'000, 0);
  const auto machine = Machine::discover(host.options());
  ASSERT_TRUE(machine);
  EXPECT_EQ(machine->nodes[1].kind, NodeKind::hbm);
}

TEST(SysfsTest, BrokenFilesLeaveFactsOut) {
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

TEST(SysfsTest, UnreadableFilesLeaveFactsOut) {
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

TEST(SysfsTest, CachesComeOnceEach) {
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
  EXPECT_EQ(last_level_cache(*machine, 1)->size, 32_MiB);
}

TEST(SysfsTest, AVirtualMachineIsKnownByTheFlagsOfItsCpus) {
  FakeHost host;
  host.add_node(0, "0-1", 2_GiB, "10");
  for (const auto& [flag, is_virtual] : {std::pair{"hypervisors", false}, {"hypervisor", true}}) {
    host.write("proc/cpuinfo", fmt::format("processor : 0\nflags\t\t: fpu {} lahf_lm\n", flag));
    EXPECT_EQ(Machine::discover(host.options())->provenance.contains("hypervisor"), is_virtual);
  }
}

// Arm CPUs have no flag for it. The files have firmware's names of machines and guests.
TEST(SysfsTest, AVirtualMachineOfArmIsKnownByItsFirmware) {
  using Files = std::vector<std::pair<const char*, const char*>>;
  const std::string dmi = "sys/class/dmi/id/";
  const std::pair<Files, bool> hosts[] = {
      {{}, false},
      {{{"sys_vendor", "QEMU"}, {"product_name", "KVM Virtual Machine"}}, true},
      {{{"sys_vendor", "QEMU"}, {"product_name", "QEMU Virtual Machine"}}, true},
      {{{"sys_vendor", "Amazon EC2"}, {"product_name", "c7g.large"}}, true},
      {{{"sys_vendor", "Amazon EC2"}, {"product_name", "c7g.metal"}}, false},
      {{{"sys_vendor", "Google"}, {"product_name", "Google Compute Engine"}}, true},
      {{{"sys_vendor", "Microsoft Corporation"}, {"product_name", "Virtual Machine"}}, true},
      {{{"sys_vendor", "Microsoft Corporation"}, {"product_name", "Surface Pro"}}, false},
      {{{"sys_vendor", "Supermicro"}, {"product_name", "ARS-221GL-NR"}}, false},
  };
  for (const auto& [files, is_virtual] : hosts) {
    FakeHost host;
    host.add_node(0, "0-1", 2_GiB, "10");
    host.write("proc/cpuinfo", "processor\t: 0\nFeatures\t: fp asimd\n");
    for (const auto& [name, text] : files) host.write(dmi + name, text);
    EXPECT_EQ(Machine::discover(host.options())->provenance.contains("hypervisor"), is_virtual)
        << (files.empty() ? "nothing is said" : files.back().second);
  }
  for (const char* file : {"hypervisor/compatible", "compatible"}) {
    FakeHost host;
    host.add_node(0, "0-1", 2_GiB, "10");
    host.write("proc/cpuinfo", "processor\t: 0\nFeatures\t: fp asimd\n");
    host.write("proc/device-tree/compatible", "arm,base");
    EXPECT_FALSE(Machine::discover(host.options())->provenance.contains("hypervisor"));
    host.write(std::string("proc/device-tree/") + file, "linux,dummy-virt");
    EXPECT_TRUE(Machine::discover(host.options())->provenance.contains("hypervisor")) << file;
  }
}

TEST(SysfsTest, TheSystemIsNamedByItsFirmware) {
  FakeHost host;
  host.add_node(0, "0-1", 2_GiB, "10");
  EXPECT_FALSE(Machine::discover(host.options())->provenance.contains("system"));
  host.write("sys/class/dmi/id/product_name", "Standard PC");
  EXPECT_EQ(Machine::discover(host.options())->provenance.at("system"), "Standard PC");
  host.write("sys/class/dmi/id/sys_vendor", "QEMU");
  EXPECT_EQ(Machine::discover(host.options())->provenance.at("system"), "QEMU Standard PC");
}

}  // namespace
}  // namespace headrace
