// SPDX-License-Identifier: Apache-2.0
#include "topology/discovery/links.h"

#include <gtest/gtest.h>

#include "tests/support/fake_host.h"

namespace headrace {
namespace {

using test::FakeHost;

constexpr std::string_view kSsd = "sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0/";
constexpr std::string_view kGpu = "sys/devices/pci0000:00/0000:00:02.0/0000:17:00.0/";

std::string operator+(std::string_view path, const std::string& name) {
  return std::string(path) + name;
}

void set_wires(FakeHost& host, std::string_view function, const std::string& speed,
               const std::string& lanes) {
  host.write(function + "current_link_speed", speed);
  host.write(function + "current_link_width", lanes);
}

// Sockets with one node each.
void add_sockets(FakeHost& host, unsigned count) {
  for (unsigned id = 0; id < count; ++id) {
    std::string distances;
    for (unsigned other = 0; other < count; ++other) distances += id == other ? "10 " : "21 ";
    host.add_node(id, std::to_string(id), 2_GiB, distances);
    host.write(fmt::format("sys/devices/system/cpu/cpu{}/topology/physical_package_id", id),
               std::to_string(id));
  }
}

void add_gpu(FakeHost& host, const std::string& speed) {
  set_wires(host, kGpu, speed, "16");
  host.write(kGpu + "vendor", "0x10de");
  host.write(kGpu + "class", "0x030200");
  host.write(kGpu + "numa_node", "1");
  host.link("sys/bus/pci/devices/0000:17:00.0", std::string(kGpu));
}

Machine discovered(const FakeHost& host) {
  auto machine = Machine::discover(host.options());
  EXPECT_TRUE(machine) << machine.error().message;
  return machine ? *std::move(machine) : Machine{};
}

std::vector<NodeId> ids(std::initializer_list<std::uint32_t> numbers) {
  std::vector<NodeId> made;
  for (const std::uint32_t number : numbers) made.push_back(NodeId{number});
  return made;
}

TEST(DiscoverLinksTest, Sockets_HaveALinkOfUnknownLimit) {
  for (const auto& [model, kind] : std::vector<std::pair<std::string, LinkKind>>{
           {"Intel(R) Xeon(R) CPU Max 9468", LinkKind::upi},
           {"Intel(R) Xeon(R) Platinum 8480+", LinkKind::upi},
           {"Intel(R) Xeon(R) CPU E5-2680 v4 @ 2.40GHz", LinkKind::socket},
           {"AMD EPYC 9654 96-Core Processor", LinkKind::xgmi},
           {"something else", LinkKind::socket}}) {
    FakeHost host;
    add_sockets(host, 2);
    host.set_cpu_model(model);
    const Machine machine = discovered(host);
    ASSERT_EQ(machine.links.size(), 1u);
    EXPECT_EQ(machine.links[0].kind, kind) << model;
    EXPECT_EQ(machine.links[0].a, ids({0}));
    EXPECT_EQ(machine.links[0].b, ids({1}));
    EXPECT_EQ(machine.links[0].each_way, std::nullopt);
    EXPECT_EQ(machine.links[0].both_ways, std::nullopt);
    EXPECT_EQ(machine.links[0].latency, std::nullopt);
  }
}

TEST(DiscoverLinksTest, SocketsAreJoinedInPairs) {
  for (const auto& [sockets, links] : {std::pair{1u, 0u}, {4u, 6u}}) {
    FakeHost host;
    add_sockets(host, sockets);
    EXPECT_EQ(discovered(host).links.size(), links);
  }
}

TEST(DiscoverLinksTest, SocketsOfAGuest_HaveALinkOfUnknownMake) {
  FakeHost host;
  add_sockets(host, 2);
  host.write("proc/cpuinfo", "model name\t: AMD EPYC 9654\nflags\t\t: fpu hypervisor");
  const Machine machine = discovered(host);
  ASSERT_EQ(machine.links.size(), 1u);
  EXPECT_EQ(machine.links[0].kind, LinkKind::socket);
  EXPECT_EQ(machine.links[0].reason, "between sockets, as the hypervisor shows it");
}

TEST(DiscoverLinksTest, AGpuHasThePcieLinkOfItsFunction) {
  FakeHost host;
  add_sockets(host, 2);
  add_gpu(host, "32.0 GT/s PCIe");
  const Machine machine = discovered(host);
  ASSERT_EQ(machine.links.size(), 2u);
  const Link& link = machine.links[1];
  EXPECT_EQ(link.kind, LinkKind::pcie);
  EXPECT_EQ(link.a, ids({2000}));
  EXPECT_EQ(link.b, ids({1}));
  // 32 GT/s x 16 lanes x 128/130 / 8.
  ASSERT_TRUE(link.each_way);
  EXPECT_NEAR(link.each_way->value, 63.015e9, 1e6);
  EXPECT_EQ(link.each_way_source, "32 GT/s in sysfs");
  EXPECT_EQ(link.reason, "PCIe 5.0 x16, 0000:17:00.0");
  EXPECT_EQ(machine.links[0].b, ids({1})) << "devices are at no end of a link between sockets";
}

TEST(DiscoverLinksTest, IdleGpu_CountsWithItsFullSpeed) {
  FakeHost host;
  add_sockets(host, 2);
  add_gpu(host, "2.5 GT/s PCIe");
  EXPECT_NEAR(discovered(host).links[1].each_way->value, 4e9, 1e6);
  host.write(kGpu + "max_link_speed", "32.0 GT/s PCIe");
  host.write("sys/devices/pci0000:00/0000:00:02.0/max_link_speed", "16.0 GT/s PCIe");
  const Machine machine = discovered(host);
  EXPECT_NEAR(machine.links[1].each_way->value, 31.508e9, 1e6);
  EXPECT_EQ(machine.links[1].each_way_source, "2.5 GT/s in sysfs, up to 16 when awake");
}

TEST(DiscoverLinksTest, FewerLanesThanBothEndsHave_AreSaid) {
  FakeHost host;
  add_sockets(host, 2);
  add_gpu(host, "32.0 GT/s PCIe");
  host.write(kGpu + "current_link_width", "8");
  host.write(kGpu + "max_link_width", "16");
  EXPECT_EQ(discovered(host).links[1].reason, "PCIe 5.0 x8, 0000:17:00.0")
      << "the port may have 8 only";
  const std::string port = "sys/devices/pci0000:00/0000:00:02.0/max_link_width";
  host.write(port, "16");
  const Machine machine = discovered(host);
  EXPECT_EQ(machine.links[1].reason, "PCIe 5.0 x8 of x16, 0000:17:00.0");
  EXPECT_EQ(machine.links[1].each_way_source, "32 GT/s in sysfs, 8 of 16 lanes");
  EXPECT_NEAR(machine.links[1].each_way->value, 31.508e9, 1e6) << "what the lanes give now";
  host.write(port, "8");
  EXPECT_EQ(discovered(host).links[1].reason, "PCIe 5.0 x8, 0000:17:00.0");
}

TEST(DiscoverLinksTest, MissingFiles_LeaveLinksUnknown) {
  FakeHost host;
  add_sockets(host, 2);
  add_gpu(host, "Unknown");
  const Machine machine = discovered(host);
  ASSERT_EQ(machine.links.size(), 2u);
  EXPECT_EQ(machine.links[1].each_way, std::nullopt);
  EXPECT_EQ(machine.links[1].each_way_source, "");
  std::filesystem::remove(host.at(kGpu + "current_link_speed"));
  EXPECT_EQ(discovered(host).links.size(), 1u) << "no function of PCIe, as in a guest";
}

TEST(DiscoverLinksTest, ADiskHasTheFunctionThatItIsBelow) {
  FakeHost host;
  set_wires(host, kSsd, "16.0 GT/s PCIe", "4");
  host.write(kSsd + "nvme/nvme0/nvme0n1/size", "1");
  const auto functions = functions_of_disk(host.at(kSsd + "nvme/nvme0/nvme0n1"));
  ASSERT_EQ(functions.size(), 1u);
  EXPECT_EQ(functions[0].filename(), "0000:81:00.0");
  host.write("sys/devices/virtual/block/zram0/size", "1");
  EXPECT_TRUE(functions_of_disk(host.at("sys/devices/virtual/block/zram0")).empty());
  EXPECT_TRUE(functions_of_disk("").empty());
}

TEST(DiscoverLinksTest, ADiskOfSeveralControllersHasTheFunctionOfEach) {
  FakeHost host;
  const std::string other = "sys/devices/pci0000:00/0000:00:03.0/0000:03:00.0/";
  set_wires(host, kSsd, "16.0 GT/s PCIe", "4");
  set_wires(host, other, "16.0 GT/s PCIe", "4");
  const std::string subsystem = "sys/devices/virtual/nvme-subsystem/nvme-subsys0/";
  host.write(subsystem + "nvme0n1/size", "1");
  host.write(kSsd + "nvme/nvme0/state", "live");
  host.write(other + "nvme/nvme1/state", "live");
  host.link(subsystem + "nvme0", kSsd + "nvme/nvme0");
  host.link(subsystem + "nvme1", other + "nvme/nvme1");
  EXPECT_EQ(functions_of_disk(host.at(subsystem + "nvme0n1")).size(), 2u);
}

// A node of CXL memory behind two devices, as created by `cxl create-region`.
TEST(DiscoverLinksTest, ACxlRegionHasTheLinksOfItsDevices) {
  FakeHost host;
  add_sockets(host, 2);
  host.add_node(2, "", 4_GiB, "21 14 10");
  const std::string root = "sys/devices/platform/ACPI0017:00/root0/";
  for (const unsigned i : {0u, 1u}) {
    const std::string function = fmt::format("sys/devices/pci0000:{0}d/0000:{0}d:00.0/", i + 1);
    set_wires(host, function, "32.0 GT/s PCIe", "8");
    host.write(function + "numa_node", "1");
    host.write(function + fmt::format("mem{}/serial", i), "0x1");
    const std::string endpoint = root + fmt::format("port1/endpoint{}/", i + 2);
    host.write(endpoint + fmt::format("decoder{}.0/start", i + 2), "0x0");
    host.link(endpoint + "uport", function + fmt::format("mem{}", i));
    host.link(fmt::format("sys/bus/cxl/devices/decoder{}.0", i + 2),
              endpoint + fmt::format("decoder{}.0", i + 2));
    host.write(root + fmt::format("decoder0.0/region0/target{}", i),
               fmt::format("decoder{}.0", i + 2));
  }
  host.write(root + "decoder0.0/region0/dax_region0/dax0.0/target_node", "2");
  host.link("sys/bus/cxl/devices/region0", root + "decoder0.0/region0");
  host.link("sys/bus/dax/devices/dax0.0", root + "decoder0.0/region0/dax_region0/dax0.0");

  const Machine machine = discovered(host);
  ASSERT_EQ(machine.links.size(), 2u);
  const Link& link = machine.links[1];
  EXPECT_EQ(link.kind, LinkKind::cxl);
  EXPECT_EQ(link.a, ids({2}));
  EXPECT_EQ(link.b, ids({1}));
  ASSERT_TRUE(link.each_way);
  EXPECT_NEAR(link.each_way->value, 63.015e9, 1e6) << "two of x8";
  EXPECT_EQ(link.reason, "PCIe 5.0 x8, 0000:1d:00.0; PCIe 5.0 x8, 0000:2d:00.0");
  EXPECT_EQ(machine.links[0].a, ids({0}));
}

TEST(DiscoverLinksTest, NodesBehindOneFunctionShareItsLink) {
  Machine machine;
  machine.nodes = {{.id = NodeId{0}, .kind = NodeKind::dram, .cpus = {0}},
                   {.id = NodeId{2000}, .kind = NodeKind::gpu},
                   {.id = NodeId{2001}, .kind = NodeKind::gpu}};
  const std::vector<std::filesystem::path> function = {"/no/0000:17:00.0"};
  const auto links = find_links(machine, {{NodeId{2000}, LinkKind::pcie, function, {}},
                                          {NodeId{2001}, LinkKind::pcie, function, {}}});
  ASSERT_EQ(links.size(), 1u);
  EXPECT_EQ(links[0].a, ids({2000, 2001}));
  EXPECT_EQ(links[0].b, ids({0}));
  EXPECT_EQ(links[0].each_way, std::nullopt);
}

}  // namespace
}  // namespace headrace
