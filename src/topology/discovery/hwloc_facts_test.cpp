// SPDX-License-Identifier: Apache-2.0
#include "topology/discovery/hwloc_facts.h"

#include <gtest/gtest.h>

#include "tests/support/fake_host.h"

namespace headrace {
namespace {

using test::FakeHost;

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
}

TEST(HwlocTest, BadXmlIsAnError) {
  FakeHost files;
  DiscoverOptions options{.hwloc_xml = files.at("none.xml"), .storage = {}, .headrace_nodes = ""};
  EXPECT_EQ(Machine::discover(options).error().code, ErrorCode::absent);
  // Not opened: a device or a pipe may never end.
  options.hwloc_xml = "/dev/zero";
  EXPECT_EQ(Machine::discover(options).error().code, ErrorCode::invalid);
  files.write("bad.xml", "<topology><object type=\"Mach");
  options.hwloc_xml = files.at("bad.xml");
  EXPECT_EQ(Machine::discover(options).error().code, ErrorCode::invalid);
}

}  // namespace
}  // namespace headrace
