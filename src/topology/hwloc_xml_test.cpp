// SPDX-License-Identifier: Apache-2.0
// Machines as other programs see them through hwloc: written as XML, and read back by hwloc.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "headrace/machine.h"
#include "tests/support/fake_host.h"

namespace headrace {
namespace {

using test::FakeHost;

Machine read_back(const Machine& machine) {
  const auto xml = to_hwloc_xml(machine);
  EXPECT_TRUE(xml) << xml.error().message;
  FakeHost files;
  files.write("machine.xml", xml.value_or(""));
  auto back = Machine::discover({.hwloc_xml = files.at("machine.xml"),
                                 .storage = {},
                                 .headrace_nodes = "",
                                 .memkind_hbw_nodes = ""});
  EXPECT_TRUE(back) << back.error().message;
  return back.value_or(Machine{});
}

// hwloc stores whole MiB/s.
double in_mebibytes(BytesPerSecond rate) { return std::round(rate.value / 0x1p20); }

const AccessAttributes* access_from(const Node& node, NodeId initiator) {
  const auto found = std::ranges::find(node.access, initiator, &AccessAttributes::initiator);
  return found == node.access.end() ? nullptr : &*found;
}

class PresetXml : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, PresetXml, testing::ValuesIn(presets()));

TEST_P(PresetXml, IsReadBackWithNodesKindsAndAttributes) {
  const auto machine = Machine::load(GetParam());
  ASSERT_TRUE(machine);
  const Machine back = read_back(*machine);
  std::size_t memories = 0;
  for (const Node& node : machine->nodes) {
    if (!node.byte_addressable()) continue;
    ++memories;
    const Node* found = back.find(node.id);
    ASSERT_NE(found, nullptr) << node.name;
    EXPECT_EQ(found->kind, node.kind) << node.name;
    EXPECT_EQ(found->cpus, node.cpus) << node.name;
    EXPECT_EQ(found->capacity, node.capacity) << node.name;
    EXPECT_EQ(found->socket, node.socket) << node.name;
    for (const AccessAttributes& access : node.access) {
      const AccessAttributes* read = access_from(*found, access.initiator);
      ASSERT_NE(read, nullptr) << node.name << " from " << raw(access.initiator);
      if (access.read_latency) {
        EXPECT_EQ(read->read_latency, access.read_latency);
      }
      if (access.read_bandwidth) {
        EXPECT_EQ(in_mebibytes(*read->read_bandwidth), in_mebibytes(*access.read_bandwidth));
      }
      if (access.write_bandwidth) {
        EXPECT_EQ(in_mebibytes(*read->write_bandwidth), in_mebibytes(*access.write_bandwidth));
      }
    }
  }
  EXPECT_EQ(back.nodes.size(), memories);
  EXPECT_EQ(back.name, "machine") << "as its file";
}

TEST(HwlocXmlTest, MeasuredGoesBeforeRated) {
  auto machine = Machine::load("cxl-a1000");
  ASSERT_TRUE(machine);
  AccessAttributes rated = machine->nodes[8].access[0];
  rated.measured = false;
  rated.read_latency = Nanoseconds{999};
  rated.write_latency = Nanoseconds{333};
  machine->nodes[8].access.insert(machine->nodes[8].access.begin(), rated);
  const Machine back = read_back(*machine);
  const AccessAttributes* access = access_from(*back.find(NodeId{8}), NodeId{0});
  ASSERT_NE(access, nullptr);
  EXPECT_EQ(access->read_latency, Nanoseconds{251});
  EXPECT_EQ(access->write_latency, Nanoseconds{333}) << "rated, as nothing else is known";
}

TEST(HwlocXmlTest, WhatWasMeasuredHereIsInItsOwnXml) {
  auto machine = Machine::discover({.storage = {}, .headrace_nodes = "", .memkind_hbw_nodes = ""});
  if (!machine) GTEST_SKIP() << machine.error().message;
  const auto node =
      std::ranges::find_if(machine->nodes, [](const Node& each) { return !each.cpus.empty(); });
  if (node == machine->nodes.end()) GTEST_SKIP() << "no memory with CPUs";
  node->access = {{.initiator = node->id,
                   .read_latency = Nanoseconds{123},
                   .read_bandwidth = BytesPerSecond{456 * 0x1p20},
                   .source = "test",
                   .measured = true}};
  const Machine back = read_back(*machine);
  ASSERT_NE(back.find(node->id), nullptr);
  const AccessAttributes* access = access_from(*back.find(node->id), node->id);
  ASSERT_NE(access, nullptr);
  EXPECT_EQ(access->read_latency, Nanoseconds{123});
  EXPECT_EQ(in_mebibytes(*access->read_bandwidth), 456);
}

TEST(HwlocXmlTest, AMachineWithoutCpusIsRefused) {
  Machine machine{.name = "shelf"};
  machine.nodes.push_back({.id = NodeId{0}, .kind = NodeKind::dram});
  const auto xml = to_hwloc_xml(machine);
  ASSERT_FALSE(xml);
  EXPECT_EQ(xml.error().code, ErrorCode::invalid);
}

}  // namespace
}  // namespace headrace
