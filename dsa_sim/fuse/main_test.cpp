// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <fstream>

#include "dsa_sim/fuse/program_testing.h"

namespace headrace::emulator {
namespace {

class Main : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = test::obstacle()) GTEST_SKIP() << *why;
  }

  // What it says last and how it ends.
  static std::pair<std::string, std::optional<int>> run(const std::vector<std::string>& arguments) {
    test::Program program(arguments);
    std::string line = program.line();
    return {std::move(line), program.end()};
  }
};

TEST_F(Main, Helps) {
  const auto [line, status] = run({"--help"});
  EXPECT_TRUE(line.starts_with("Serves emulated Intel DSA devices as files")) << line;
  EXPECT_EQ(status, 0);
}

TEST_F(Main, RefusesWrongOptionsWith2) {
  const auto [line, status] = run({"--colour", "/tmp"});
  EXPECT_TRUE(line.starts_with("headrace-dsa-sim: ")) << line;
  EXPECT_NE(line.find("--colour"), std::string::npos) << line;
  EXPECT_EQ(status, 2);
}

TEST_F(Main, RefusesAMissingMountPointWith3) {
  const auto [line, status] = run({"/nowhere/at/all"});
  EXPECT_EQ(line, "headrace-dsa-sim: cannot serve /nowhere/at/all: No such file or directory");
  EXPECT_EQ(status, 3);
}

TEST_F(Main, RefusesAFileWith2) {
  const auto [line, status] = run({"/proc/self/stat"});
  EXPECT_EQ(line, "headrace-dsa-sim: /proc/self/stat is not a directory; give an empty one");
  EXPECT_EQ(status, 2);
}

TEST_F(Main, RefusesAMountPointThatIsInUseWith6) {
  const test::Emulator emulator;
  const std::string path = emulator.path("");
  const auto [line, status] = run({path});
  EXPECT_TRUE(line.starts_with("headrace-dsa-sim: something is mounted on ")) << line;
  EXPECT_EQ(status, 6);
}

TEST_F(Main, RefusesTheMountPointOfADeadOneWith6) {
  test::Emulator emulator;
  emulator.program().signal(SIGKILL);
  EXPECT_EQ(emulator.program().end(), 128 + SIGKILL);
  const auto [line, status] = run({emulator.path("")});
  EXPECT_NE(line.find("emulator that died; umount it first"), std::string::npos) << line;
  EXPECT_EQ(status, 6);
}

TEST_F(Main, EndsWellOnSignals) {
  for (const int number : {SIGTERM, SIGINT}) {
    test::Emulator emulator({"--devices", "2"});
    EXPECT_TRUE(emulator.said().starts_with("serving 2 sapphire-rapids devices at /"))
        << emulator.said();
    emulator.program().signal(number);
    EXPECT_EQ(emulator.program().end(), 0);
    EXPECT_FALSE(std::filesystem::exists(emulator.path("control")));
    std::ifstream mounts("/proc/self/mounts");
    for (std::string line; std::getline(mounts, line);) {
      EXPECT_EQ(line.find(emulator.path("")), std::string::npos) << line;
    }
  }
}

}  // namespace
}  // namespace headrace::emulator
