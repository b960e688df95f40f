// SPDX-License-Identifier: Apache-2.0
#include "host/host_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/support/folder.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

// A host made of files in a temporary folder.
class HostMemoryTest : public testing::Test {
 protected:
  void write(const fs::path& file, const std::string& text) { root_.write(file, text); }
  void write_node(unsigned id, unsigned free_kib, unsigned files_kib = 0, unsigned slab_kib = 0) {
    const std::string prefix = "Node " + std::to_string(id) + " ";
    write("sys/devices/system/node/node" + std::to_string(id) + "/meminfo",
          prefix + "MemTotal:        262144 kB\n" + prefix +
              "MemFree:    " + std::to_string(free_kib) + " kB\n" + prefix +
              "Active:   99999 kB\n" + prefix + "Active(file):   " + std::to_string(files_kib / 2) +
              " kB\n" + prefix + "Inactive(file):   " + std::to_string(files_kib - files_kib / 2) +
              " kB\n" + prefix + "KReclaimable:   77777 kB\n" + prefix +
              "SReclaimable:   " + std::to_string(slab_kib) + " kB\n");
  }
  void write_two_nodes() {
    write("sys/devices/system/node/has_memory", "0,8\n");
    write_node(0, 102400);
    write_node(8, 51200);
  }
  HostMemory read() const { return read_host_memory(HostFiles(root_.root())); }

  const test::TestFolder root_;
};

TEST_F(HostMemoryTest, ReadsEachNode) {
  write_two_nodes();
  write_node(0, 102400, 2048, 1024);
  const HostMemory host = read();
  ASSERT_EQ(host.nodes.size(), 2U);
  EXPECT_EQ(host.nodes[0].id, NodeId{0});
  EXPECT_EQ(host.nodes[0].free, 103_MiB) << "free pages, file pages and slab";
  EXPECT_EQ(host.nodes[1].id, NodeId{8});
  EXPECT_EQ(host.find(NodeId{8})->free, 50_MiB);
  EXPECT_EQ(host.find(NodeId{1}), nullptr);
  EXPECT_EQ(host.free(), 153_MiB);
  EXPECT_EQ(host.free_text(), "node 0 103 MiB, node 8 50 MiB");
}

TEST_F(HostMemoryTest, LeavesOutWhatTheKernelKeeps) {
  write_two_nodes();
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  write("proc/zoneinfo",
        "Node 0, zone    DMA32\n  per-node stats\n      nr_low 5\n  pages free     3840\n"
        "        boost    0\n        min      47\n        low      58\n        high     69\n"
        "        managed  3840\n        protection: (0, 100, 200, 150)\n"
        "Node 0, zone   Normal\n        low      10\n        high     20\n"
        "        managed  1000\n        protection: (0, 0)\n"
        "Node 8, zone   Normal\n        low      1\n        high     500\n"
        "        managed  30\n        protection: (0, 0)\n");
  const HostMemory host = read();
  EXPECT_EQ(host.find(NodeId{0})->free, 100_MiB - Bytes{page * (69 + 200 + 20)});
  EXPECT_EQ(host.find(NodeId{8})->free, 50_MiB - Bytes{page * 30}) << "no more than it manages";
}

TEST_F(HostMemoryTest, OneNode_UsesTheHostsTotal) {
  write("sys/devices/system/node/has_memory", "0\n");
  write_node(0, 4096);
  write("proc/meminfo", "MemTotal:  24684096 kB\nMemFree: 1 kB\nMemAvailable:   1048576 kB\n");
  EXPECT_EQ(read().nodes.front().free, 1_GiB);
}

TEST_F(HostMemoryTest, SeveralNodes_DoNotUseTheHostsTotal) {
  write_two_nodes();
  write("proc/meminfo", "MemTotal:  24684096 kB\nMemAvailable:   1048576 kB\n");
  EXPECT_EQ(read().free(), 150_MiB);
}

TEST_F(HostMemoryTest, AKernelWithoutNumaHasOneNode) {
  write("proc/meminfo", "MemAvailable:   2048 kB\n");
  const HostMemory host = read();
  ASSERT_EQ(host.nodes.size(), 1U);
  EXPECT_EQ(host.nodes[0].id, NodeId{0});
  EXPECT_EQ(host.nodes[0].free, 2_MiB);
  EXPECT_TRUE(host.nodes[0].allowed);
  EXPECT_FALSE(host.transparent);
  EXPECT_EQ(host.cgroup, std::nullopt);
}

TEST_F(HostMemoryTest, ReadsTheCpuset) {
  write_two_nodes();
  write("proc/self/status", "Name:\tx\nMems_allowed:\tff\nMems_allowed_list:\t0-7\nx:\t1\n");
  const HostMemory host = read();
  EXPECT_EQ(host.allowed_list, "0-7");
  EXPECT_TRUE(host.find(NodeId{0})->allowed);
  EXPECT_FALSE(host.find(NodeId{8})->allowed);
  EXPECT_EQ(host.free(), 100_MiB) << "only what this process may use";
}

TEST_F(HostMemoryTest, ReadsHugePools) {
  write_two_nodes();
  write("sys/devices/system/node/node8/hugepages/hugepages-2048kB/free_hugepages", "12\n");
  write("sys/devices/system/node/node8/hugepages/hugepages-1048576kB/free_hugepages", "1\n");
  const HostMemory host = read();
  EXPECT_TRUE(host.find(NodeId{0})->free_huge.empty());
  EXPECT_EQ(host.find(NodeId{8})->free_huge,
            (std::map<Bytes, std::uint64_t>{{2_MiB, 12}, {1_GiB, 1}}));
}

TEST_F(HostMemoryTest, ReadsWhetherHugePagesAreGivenOnRequest) {
  write_two_nodes();
  const fs::path file = "sys/kernel/mm/transparent_hugepage/enabled";
  write(file, "always [madvise] never\n");
  EXPECT_TRUE(read().transparent);
  write(file, "[always] madvise never\n");
  EXPECT_TRUE(read().transparent);
  write(file, "always madvise [never]\n");
  EXPECT_FALSE(read().transparent);
}

TEST_F(HostMemoryTest, TakesTheTightestCgroupOnTheWayUp) {
  write_two_nodes();
  write("proc/self/cgroup", "0::/a/b\n");
  const fs::path a = "sys/fs/cgroup/a";
  write(a / "b/memory.max", "max\n");
  write(a / "b/memory.current", "5\n");
  write(a / "memory.max", "10485760\n");
  write(a / "memory.current", "4194304\n");
  write(a / "memory.stat", "anon 1\nfile 3\ninactive_file 1048576\nactive_file 1048576\n");
  EXPECT_EQ(read().cgroup, 8_MiB) << "10 - (4 - 2) MiB: file pages can be dropped";
  EXPECT_NE(read().free_text().find("memory cgroup 8 MiB"), std::string::npos);
}

TEST_F(HostMemoryTest, ReadsVersionOneCgroups) {
  write_two_nodes();
  write("proc/self/cgroup", "9:name=systemd:/\n4:memory:/host/path/not/here\n0::/\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "1\n");
  EXPECT_EQ(read().cgroup, std::nullopt) << "the largest number means no limit";
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "2097152\n");
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "1048576\n");
  EXPECT_EQ(read().cgroup, 1_MiB);
}

TEST_F(HostMemoryTest, SurvivesNonsense) {
  write("sys/devices/system/node/has_memory", "not a list\n");
  write("sys/devices/system/node/online", "0-\n");
  write("proc/self/cgroup", "::\nx\n0::\n");
  write("proc/self/status", "Mems_allowed_list:\n");
  write("proc/zoneinfo", "Node\nNode x\nNode 0, zone\n protection:\nNode 0 protection: (\n");
  write("proc/meminfo", "MemAvailable: kB\n");
  const HostMemory host = read();
  ASSERT_EQ(host.nodes.size(), 1U);
  EXPECT_EQ(host.nodes[0].free, 0_B);
}

TEST(ThisHost, HasMemory) {
  const HostMemory host = read_host_memory();
  ASSERT_FALSE(host.nodes.empty());
  EXPECT_GT(host.free(), 0_B);
  EXPECT_FALSE(host.allowed_list.empty());
}

}  // namespace
}  // namespace headrace
