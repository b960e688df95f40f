// SPDX-License-Identifier: Apache-2.0
#include "topology/discovery/facts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "tests/support/fake_cuda/fake_library.h"
#include "tests/support/fake_host.h"

namespace headrace {
namespace {

using test::FakeHost;

TEST(AcceleratorsTest, DsaNeedsAWorkQueueForUsers) {
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

TEST(AcceleratorsTest, DsaDevicesMayBeElsewhere) {
  FakeHost host;
  host.add_node(0, "0-1", 2_GiB, "10");
  host.write("else/dsa3/state", "enabled");
  host.write("else/dsa3/wq3.0/state", "enabled");
  host.write("else/dsa3/wq3.0/type", "user");
  DiscoverOptions options = host.options();
  EXPECT_EQ(Machine::discover(options)->engines.size(), 1u);
  options.dsa = host.at("else");
  EXPECT_EQ(Machine::discover(options)->engines.back().name, "dsa3");
}

TEST(AcceleratorsTest, GpusAreSeenByPciClassAndVendor) {
  FakeHost host;
  host.add_node(0, "0-1", 2_GiB, "10");
  const auto add = [&](const std::string& address, const char* vendor, const char* code) {
    host.write("sys/bus/pci/devices/" + address + "/vendor", vendor);
    host.write("sys/bus/pci/devices/" + address + "/class", code);
  };
  add("0000:17:00.0", "0x10de", "0x030200");
  add("0000:03:00.0", "0x1a03", "0x030000");  // a management controller
  add("0000:18:00.0", "0x10de", "0x040300");  // a GPU's sound device
  const auto machine = Machine::discover(host.options());
  ASSERT_TRUE(machine);
  ASSERT_EQ(machine->nodes.size(), 2u);
  EXPECT_EQ(machine->nodes[1].id, NodeId{2000});
  EXPECT_EQ(machine->nodes[1].kind, NodeKind::gpu);
  EXPECT_EQ(machine->nodes[1].name, "NVIDIA GPU 0000:17:00.0");
  EXPECT_EQ(machine->nodes[1].capacity, std::nullopt);
}

// This host, with GPUs of a driver in software.
TEST(AcceleratorsTest, GpuDriver_CompletesTheFacts) {
  const FakeCudaLibrary library("devices=2,memory=64M,engines=3,host_node=0,paradigm=hmm");
  const auto machine = Machine::discover({.storage = {}});
  ASSERT_TRUE(machine) << machine.error().message;
  const auto gpus = machine->of_kind(NodeKind::gpu);
  ASSERT_GE(gpus.size(), 2u);
  const Node& first = *gpus.front();
  EXPECT_EQ(first.id, NodeId{kFirstGpuNode});
  EXPECT_TRUE(first.name.starts_with("Headrace fake GPU")) << first.name;
  EXPECT_EQ(first.capacity, 64_MiB);
  ASSERT_TRUE(first.gpu);
  EXPECT_EQ(first.gpu->paradigm, GpuParadigm::hmm);
  EXPECT_EQ(first.gpu->copy_engines, 3u);
  EXPECT_EQ(first.gpu->host, NodeId{0});
  EXPECT_TRUE(first.gpu->emulated);
  EXPECT_TRUE(first.reason.ends_with("hmm, at node 0 (the driver); emulated")) << first.reason;
  const auto engine = std::ranges::find(machine->engines, EngineKind::gpu, &Engine::kind);
  ASSERT_NE(engine, machine->engines.end());
  EXPECT_EQ(engine->name, "gpu0");
  EXPECT_EQ(engine->home, first.id);
  EXPECT_EQ(engine->reason, "3 copy engines");
  EXPECT_TRUE(gpu_driver()->ends_with(", CUDA 13.0"));
  const auto again = Machine::from_json(machine->to_json());
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->to_json(), machine->to_json());
  EXPECT_EQ(again->find(first.id)->gpu->uuid, first.gpu->uuid);
}

TEST(AcceleratorsTest, InstancesOfOneGpuAreNodesOfTheirOwn) {
  const FakeCudaLibrary library("devices=3,mig=1,memory=64M");
  const auto machine = Machine::discover({.storage = {}});
  ASSERT_TRUE(machine) << machine.error().message;
  std::set<std::string> uuids;
  std::set<std::string> addresses;
  for (const Node* node : machine->of_kind(NodeKind::gpu)) {
    if (!node->gpu) continue;
    uuids.insert(node->gpu->uuid);
    addresses.insert(node->gpu->pci);
  }
  EXPECT_EQ(uuids.size(), 3u);
  EXPECT_EQ(addresses.size(), 1u);
}

TEST(AcceleratorsTest, TheMemoryOfAGpuMayBeANumaNode) {
  const FakeCudaLibrary library("paradigm=ats,numa_node=0");
  const auto machine = Machine::discover({.storage = {}});
  ASSERT_TRUE(machine) << machine.error().message;
  const Node& node = *machine->find(NodeId{0});
  EXPECT_EQ(node.kind, NodeKind::gpu);
  EXPECT_TRUE(node.byte_addressable());
  EXPECT_EQ(node.gpu->paradigm, GpuParadigm::ats);
  EXPECT_NE(node.reason.find("the memory of Headrace fake GPU"), std::string::npos);
}

TEST(AcceleratorsTest, GpuDriverTurnedOff_IsNotAsked) {
  const FakeCudaLibrary library;
  const auto emulated = [](const Machine& machine) {
    return std::ranges::any_of(machine.nodes,
                               [](const Node& node) { return node.gpu.has_value(); });
  };
  EXPECT_FALSE(emulated(*Machine::discover({.gpu_driver = false, .storage = {}})));
  const ScopedVariable none("HEADRACE_LIBCUDA", "");
  EXPECT_FALSE(emulated(*Machine::discover({.storage = {}})));
  EXPECT_EQ(gpu_driver().error().code, ErrorCode::absent);
}

TEST(AcceleratorsTest, MigrationNeedsTwoMemoriesAndTheKernel) {
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

}  // namespace
}  // namespace headrace
