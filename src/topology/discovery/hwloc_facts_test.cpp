// SPDX-License-Identifier: Apache-2.0
#include "topology/discovery/facts.h"

#include <gtest/gtest.h>

#include "tests/support/fake_host.h"

namespace headrace {
namespace {

using test::FakeHost;

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
