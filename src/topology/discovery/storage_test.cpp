// SPDX-License-Identifier: Apache-2.0
#include "topology/discovery/facts.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "tests/support/fake_host.h"

namespace headrace {
namespace {

using test::FakeHost;

// A host with files on a device of our choice: their real device number leads to it.
class StorageTest : public testing::Test {
 protected:
  StorageTest() {
    host_.write("data/file", "x");
    struct stat status{};
    EXPECT_EQ(stat(path().c_str(), &status), 0);
    number_ = fmt::format("{}:{}", major(status.st_dev), minor(status.st_dev));
  }
  std::filesystem::path path() const { return host_.at("data/file"); }
  void mount(const std::string& type, const std::string& source) {
    host_.write("proc/self/mountinfo", fmt::format("1 0 0:1 / /other rw - proc proc rw\n"
                                                   "36 35 {} / / rw,noatime shared:1 - {} {} rw",
                                                   number_, type, source));
  }
  Result<StorageFacts> find() { return find_storage(path(), host_.at("sys"), host_.at("proc")); }

  FakeHost host_;
  std::string number_;
};

TEST_F(StorageTest, APartitionLeadsToItsDisk) {
  const std::string disk = "sys/devices/pci/nvme/nvme0/nvme0n1";
  host_.write(disk + "/nvme0n1p2/partition", "2");
  host_.write(disk + "/size", "2048");
  host_.write(disk + "/queue/rotational", "0");
  host_.write(disk + "/device/model", "Fast SSD   ");
  host_.link("sys/dev/block/" + number_, disk + "/nvme0n1p2");
  mount("ext4", "/dev/nvme0n1p2");
  const auto facts = find();
  ASSERT_TRUE(facts) << facts.error().message;
  EXPECT_EQ(facts->name, "nvme0n1");
  EXPECT_EQ(facts->capacity, 1_MiB);
  EXPECT_EQ(facts->capacity_source, "size of nvme0n1 in sysfs");
  EXPECT_EQ(facts->reason,
            "block device nvme0n1 (Fast SSD), not rotational, through nvme0n1p2, ext4 at /");
  EXPECT_EQ(facts->path, std::filesystem::canonical(host_.at("data")).string());
}

TEST_F(StorageTest, AMappingOfOneDeviceLeadsToItAndOneOfSeveralStays) {
  host_.write("sys/devices/virtual/block/dm-0/size", "4096");
  host_.write("sys/devices/pci/sda/size", "8192");
  host_.write("sys/devices/pci/sdb/size", "8192");
  host_.link("sys/devices/virtual/block/dm-0/slaves/sda", "sys/devices/pci/sda");
  host_.link("sys/dev/block/" + number_, "sys/devices/virtual/block/dm-0");
  auto facts = find();
  ASSERT_TRUE(facts);
  EXPECT_EQ(facts->name, "sda");
  EXPECT_EQ(facts->reason, "block device sda, through dm-0");
  host_.link("sys/devices/virtual/block/dm-0/slaves/sdb", "sys/devices/pci/sdb");
  facts = find();
  ASSERT_TRUE(facts);
  EXPECT_EQ(facts->name, "dm-0");
  EXPECT_EQ(facts->reason, "block device dm-0 over 2 devices");
}

TEST_F(StorageTest, ALoopOfMappingsEnds) {
  host_.write("sys/devices/virtual/block/dm-0/size", "4096");
  host_.link("sys/devices/virtual/block/dm-0/slaves/dm-0", "sys/devices/virtual/block/dm-0");
  host_.link("sys/dev/block/" + number_, "sys/devices/virtual/block/dm-0");
  ASSERT_TRUE(find());
}

TEST_F(StorageTest, AFileSystemWithANumberOfItsOwnIsFoundByItsSource) {
  host_.write("sys/devices/pci/sda/size", "8192");
  host_.link("sys/class/block/sda", "sys/devices/pci/sda");
  mount("btrfs", "/dev/sda");
  const auto facts = find();
  ASSERT_TRUE(facts);
  EXPECT_EQ(facts->name, "sda");
}

TEST_F(StorageTest, WithoutADeviceTheMountGivesTheName) {
  mount("overlay", "overlay");
  auto facts = find();
  ASSERT_TRUE(facts);
  EXPECT_EQ(facts->name, "overlay at /");
  EXPECT_EQ(facts->reason, "overlay at /: no block device is shown behind it");
  EXPECT_TRUE(facts->capacity.has_value());
  mount("tmpfs", "tmpfs");
  facts = find();
  ASSERT_TRUE(facts);
  EXPECT_EQ(facts->reason, "tmpfs at /: its files are in memory, not on a device");
}

TEST_F(StorageTest, WithoutAnythingItIsUnknown) {
  const auto facts = find();
  ASSERT_TRUE(facts);
  EXPECT_EQ(facts->name, "unknown");
}

TEST_F(StorageTest, AMissingPathIsAbsent) {
  const auto facts = find_storage(host_.at("nothing"), host_.at("sys"), host_.at("proc"));
  ASSERT_FALSE(facts);
  EXPECT_EQ(facts.error().code, ErrorCode::absent);
}

TEST_F(StorageTest, PathsOnOneDeviceAreOneNodeWithAnEngine) {
  host_.write("sys/devices/pci/sda/size", "8192");
  host_.link("sys/dev/block/" + number_, "sys/devices/pci/sda");
  host_.add_node(0, "0", 1_GiB, "10");
  DiscoverOptions options = host_.options();
  options.storage = {host_.at("data"), path()};
  const auto machine = Machine::discover(options);
  ASSERT_TRUE(machine) << machine.error().message;
  ASSERT_EQ(machine->nodes.size(), 2u);
  EXPECT_EQ(machine->nodes[1].id, NodeId{1000});
  EXPECT_EQ(machine->nodes[1].name, "sda");
  ASSERT_EQ(machine->engines.size(), 2u);
  EXPECT_EQ(machine->engines[1].kind, EngineKind::ssd);
  EXPECT_EQ(machine->engines[1].home, NodeId{1000});
  options.storage = {host_.at("nothing")};
  EXPECT_EQ(Machine::discover(options).error().code, ErrorCode::absent);
}

}  // namespace
}  // namespace headrace
