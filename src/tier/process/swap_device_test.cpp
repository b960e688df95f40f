// SPDX-License-Identifier: Apache-2.0
#include "tier/process/swap_device.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace headrace {
namespace {

constexpr const char* kSwaps =
    "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
    "/dev/zram0                              partition\t1024\t\t1024\t\t100\n"
    "/dev/sda2                               partition\t2048\t\t512\t\t-2\n"
    "/swap\\040file                            file\t\t4096\t\t0\t\t-2\n"
    "/dev/sdb1                               partition\t8192\t\t0\t\t-3\n";

TEST(SwapDevices, AreParsedWithBlanksInTheirNames) {
  const auto devices = parse_swaps(kSwaps);
  ASSERT_EQ(devices.size(), 4u);
  EXPECT_TRUE(devices[0].compressed());
  EXPECT_EQ(devices[1].path, "/dev/sda2");
  EXPECT_EQ(devices[1].size, 2_MiB);
  EXPECT_EQ(devices[1].used, 512_KiB);
  EXPECT_EQ(devices[1].priority, -2);
  EXPECT_FALSE(devices[1].compressed());
  EXPECT_EQ(devices[2].path, "/swap file");
  EXPECT_TRUE(parse_swaps("").empty());
}

TEST(SwapDevices, FullDevice_TheNextPriorityIsInTurn) {
  auto devices = parse_swaps(kSwaps);
  auto next = next_in_turn(devices);
  ASSERT_EQ(next.size(), 2u);
  EXPECT_EQ(next[0].path, "/dev/sda2");
  EXPECT_EQ(next[1].path, "/swap file");
  devices[0].used = {};
  next = next_in_turn(devices);
  ASSERT_EQ(next.size(), 1u);
  EXPECT_EQ(next[0].path, "/dev/zram0");
  for (SwapDevice& each : devices) each.used = each.size;
  EXPECT_EQ(next_in_turn(devices).size(), 4u);
}

TEST(SwapDevices, ReadOfAPage_TakesTimeOrCannotBeDone) {
  EXPECT_FALSE(time_of_read({.path = "/nowhere/swap", .size = 1_MiB, .used = {}}));
  const std::string path = "swap_device_test_" + std::to_string(::getpid());
  std::ofstream(path) << std::string(1 << 20, 'x') << std::flush;
  const auto time = time_of_read({.path = path, .size = 1_MiB, .used = {}});
  const auto behind = time_of_read({.path = path, .size = 1_GiB, .used = {}});
  ::unlink(path.c_str());
  if (!time) GTEST_SKIP() << "no direct reads of files here";
  EXPECT_GT(*time, Nanoseconds{0});
  EXPECT_FALSE(behind) << "of a device that is smaller than it says";
}

}  // namespace
}  // namespace headrace
