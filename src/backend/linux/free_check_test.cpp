#include "backend/linux/free_check.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

HostMemory two_nodes() {
  HostMemory host;
  host.nodes = {{.id = NodeId{0}, .free = 100_MiB}, {.id = NodeId{8}, .free = 10_MiB}};
  return host;
}

TEST(CheckFree, HoldsAStrictDemandAgainstEachNode) {
  const HostMemory host = two_nodes();
  EXPECT_TRUE(check_free(host, {.nodes = {{NodeId{8}, 10_MiB}}}));
  const Status refused = check_free(host, {.nodes = {{NodeId{0}, 1_MiB}, {NodeId{8}, 11_MiB}}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::exhausted);
  EXPECT_EQ(refused.error().message,
            "11 MiB do not fit on node 8; free now: node 0 100 MiB, node 8 10 MiB; ask for less, "
            "free some, or let it spill (strict = false)");
}

TEST(CheckFree, HoldsAnotherAgainstAllNodes) {
  const HostMemory host = two_nodes();
  EXPECT_TRUE(check_free(host, {.nodes = {{NodeId{8}, 110_MiB}}, .strict = false}));
  EXPECT_FALSE(check_free(host, {.nodes = {{NodeId{8}, 111_MiB}}, .strict = false}));
}

TEST(CheckFree, CountsWhatOthersTake) {
  const HostMemory host = two_nodes();
  const std::map<NodeId, Bytes> taken = {{NodeId{8}, 4_MiB}};
  EXPECT_TRUE(check_free(host, {.nodes = {{NodeId{8}, 6_MiB}}}, taken));
  EXPECT_FALSE(check_free(host, {.nodes = {{NodeId{8}, 7_MiB}}}, taken));
  EXPECT_TRUE(check_free(host, {.nodes = {{NodeId{0}, 100_MiB}}}, taken));
  EXPECT_FALSE(check_free(host, {.nodes = {{NodeId{0}, 107_MiB}}, .strict = false}, taken));
}

TEST(CheckFree, KeepsToTheMemoryCgroup) {
  HostMemory host = two_nodes();
  host.cgroup = 5_MiB;
  EXPECT_TRUE(check_free(host, {.nodes = {{NodeId{0}, 5_MiB}}}));
  const Status refused = check_free(host, {.nodes = {{NodeId{0}, 6_MiB}}});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("memory.max"), std::string::npos);
}

TEST(Claim, IsGivenBackWhenItGoes) {
  const HostMemory host = read_host_memory();
  const Demand most{.nodes = {{host.nodes.front().id, host.nodes.front().free / 10 * 7}}};
  {
    const auto claim = Claim::make(most);
    ASSERT_TRUE(claim) << claim.error().message;
    EXPECT_FALSE(Claim::make(most)) << "both together do not fit";
  }
  EXPECT_TRUE(Claim::make(most));
}

}  // namespace
}  // namespace headrace
