// SPDX-License-Identifier: Apache-2.0
#include "backend/dsa/queue/devices.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "headrace/random.h"
#include "tests/support/dsa_sysfs.h"

namespace headrace::dsa {
namespace {

namespace fs = std::filesystem;

class DevicesTest : public testing::Test {
 protected:
  std::vector<Device> find() const {
    return find_devices({.sysfs = sysfs_.root(), .dev = "/dev/dsa"});
  }
  std::string obstacle() const {
    const Device device = find().at(0);
    return device.queues.at(0).unusable + "; " + device.queues.at(0).remedy;
  }

  const headrace::test::SysfsTree sysfs_;
};

TEST_F(DevicesTest, FactsAreReadAsTheyAre) {
  const auto devices = find();
  ASSERT_EQ(devices.size(), 1U);
  const Device& device = devices.front();
  EXPECT_EQ(device.name, "dsa0");
  EXPECT_TRUE(device.cache_control);
  EXPECT_EQ(device.engines, 1U) << "the other one is in no group";
  EXPECT_EQ(device.unusable, "");
  EXPECT_TRUE(device.operations.has(Opcode::memmove));
  EXPECT_FALSE(device.operations.has(static_cast<Opcode>(0x0a)));
  EXPECT_TRUE(device.operations.has(static_cast<Opcode>(0x20)));
  const WorkQueue& queue = device.queues.at(0);
  EXPECT_EQ(queue.unusable, "");
  EXPECT_TRUE(queue.shared);
  EXPECT_EQ(queue.credits(), 100U);
  EXPECT_EQ(queue.max_transfer, 1ULL << 31);
  EXPECT_EQ(queue.max_batch, 1024U);
  EXPECT_EQ(queue.file, "/dev/dsa/wq0.0");
}

TEST_F(DevicesTest, WhatAQueueMayDoIsWhatBothAllow) {
  sysfs_.write("dsa0/wq0.0/op_config",
               "00000000,00000000,00000000,00000000,00000000,00000000,00000000,0000000d");
  const Opcodes operations = find().at(0).queues.at(0).operations;
  EXPECT_TRUE(operations.has(Opcode::memmove));
  EXPECT_FALSE(operations.has(Opcode::batch));
  EXPECT_FALSE(operations.has(static_cast<Opcode>(0x10)));
}

TEST_F(DevicesTest, EachObstacleHasItsRemedy) {
  const auto told = [&](const std::string& file, const std::string& text, const std::string& what) {
    const std::string before = sysfs_.read(file);
    sysfs_.write(file, text);
    EXPECT_NE(obstacle().find(what), std::string::npos) << file << ": " << obstacle();
    sysfs_.write(file, before);
  };
  told("dsa0/wq0.0/type", "kernel", "--type=user");
  told("dsa0/wq0.0/driver_name", "crypto", "--driver-name=user");
  told("dsa0/wq0.0/state", "disabled", "accel-config enable-wq dsa0/wq0.0");
  told("dsa0/state", "disabled", "accel-config enable-device dsa0");
  told("dsa0/pasid_enabled", "0", "intel_iommu=on,sm_on");
  told("dsa0/wq0.0/ats_disable", "1", "--ats-disable=0");
  told("dsa0/op_cap", "0x2 0x0 0x0 0x0", "does not allow memmove");
  told("dsa0/version", "", "does not tell its version");
  told("dsa0/wq0.0/size", "-1", "does not tell its mode, size or limits");
  told("dsa0/wq0.0/threshold", "129", "does not tell");
  EXPECT_EQ(obstacle(), "; ");
}

// HEADRACE_DSA_SYSFS may name any directory.
TEST_F(DevicesTest, APipeIsNotWaitedFor) {
  fs::remove(sysfs_.root() / "dsa0/wq0.0/mode");
  ASSERT_EQ(mkfifo((sysfs_.root() / "dsa0/wq0.0/mode").c_str(), 0600), 0);
  EXPECT_NE(obstacle().find("does not tell its mode"), std::string::npos) << obstacle();
}

TEST_F(DevicesTest, NamesAreOrderedByNumber) {
  for (const char* name : {"dsa10", "dsa2", "iax1", "dsax", "dsa"})
    sysfs_.write(std::string(name) + "/state", "enabled");
  std::vector<std::string> names;
  for (const Device& device : find()) names.push_back(device.name);
  EXPECT_EQ(names, (std::vector<std::string>{"dsa0", "dsa2", "dsa10"}));
  EXPECT_TRUE(find_devices({.sysfs = sysfs_.root() / "nowhere"}).empty());
}

// With any content of the files, discovery ends, and the numbers of an offered queue are sensible.
TEST_F(DevicesTest, AnyNonsenseIsRead) {
  Random random(1);
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(sysfs_.root())) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  const std::string alphabet = "0123456789abcdefx,- \n";
  for (int round = 0; round < 300; ++round) {
    const fs::path& file = files[random.below(files.size())];
    if (random.below(8) == 0) {
      fs::remove(file);
    } else {
      std::ofstream stream(file);
      for (std::uint64_t i = random.below(80); i > 0; --i)
        stream << alphabet[random.below(alphabet.size())];
    }
    for (const Device& device : find()) {
      for (const WorkQueue& queue : device.queues) {
        if (!queue.unusable.empty()) continue;
        EXPECT_GE(queue.credits(), 1U);
        EXPECT_LE(queue.credits(), queue.size);
        EXPECT_GE(queue.max_transfer, 1U);
      }
    }
  }
}

TEST(ParseOpcodes, BothFormatsOfKernels) {
  const auto words = parse_opcodes("0x1003f03ff 0x0 0x0 0x0");
  ASSERT_TRUE(words);
  EXPECT_TRUE(words->has(Opcode::memmove));
  EXPECT_TRUE(words->has(static_cast<Opcode>(0x20)));
  EXPECT_EQ(words, parse_opcodes("00000001,003f03ff"));
  for (const char* text : {"", ",", "zz", "123456789,0", "0x1 0x1 0x1 0x1 0x1", "0xg"}) {
    EXPECT_FALSE(parse_opcodes(text)) << text;
  }
}

TEST(Roots, TheEnvironmentSaysWhere) {
  setenv("HEADRACE_DSA_SYSFS", "/a", 1);
  setenv("HEADRACE_DSA_DEV", "/b", 1);
  EXPECT_EQ(Roots::from_environment().sysfs, "/a");
  EXPECT_EQ(Roots::from_environment().dev, "/b");
  setenv("HEADRACE_DSA_SYSFS", "", 1);
  unsetenv("HEADRACE_DSA_DEV");
  EXPECT_EQ(Roots::from_environment().sysfs, "/sys/bus/dsa/devices");
  EXPECT_EQ(Roots::from_environment().dev, "/dev/dsa");
  unsetenv("HEADRACE_DSA_SYSFS");
}

}  // namespace
}  // namespace headrace::dsa
