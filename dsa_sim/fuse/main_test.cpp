// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <utility>

#include "dsa_sim/fuse/program_testing.h"

namespace headrace::emulator {
namespace {

class Main : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = test::obstacle()) GTEST_SKIP() << *why;
  }
};

// The last line that the program prints, and its exit status.
std::pair<std::string, std::optional<int>> run(const std::vector<std::string>& arguments) {
  test::Program program(arguments);
  std::string line = program.line();
  return {std::move(line), program.end()};
}

TEST_F(Main, AMistakeIsOneLineAndAnExitCode) {
  const test::Emulator other;
  struct Case {
    std::vector<std::string> arguments;
    int status;
    std::string says;
  };
  for (const auto& [arguments, status, says] : std::vector<Case>{
           {{"--colour", "/mnt"}, 2, "--colour"},
           {{}, 2, "MOUNT_POINT is required"},
           {{"--profile", "dsa9", "/mnt"}, 2, "dsa9"},
           {{"--rates=1", "/mnt"}, 2, "rates"},
           {{"--seed", "-1", "/mnt"}, 2, "--seed"},
           {{"--mode", "8", "/mnt"}, 2, "--mode '8': give 0 to 777"},
           {{"--layout", "8n1d1e", "/mnt"}, 2, "--layout '8n1d1e': give it as 8n1d1e1w"},
           {{"--layout", "8n1d1e1w2", "/mnt"}, 2, "--layout '8n1d1e1w2': give it as"},
           {{"--layout", "65n1d1e1w", "/mnt"}, 2, "up to 64 devices"},
           {{"--layout", "1n1d5e1w", "/mnt"}, 2, "5 engines; give 1 to 4"},
           {{"--queue", "both:1", "/mnt"}, 2, "--queue 'both:1': give shared:SIZE"},
           {{"--queue", "dedicated:8:4", "/mnt"}, 2, "--queue 'dedicated:8:4': give"},
           {{"--queue", "shared:8:9", "/mnt"}, 2, "threshold 9 is not within 1 to its size 8"},
           {{"--queue", "shared:129", "/mnt"}, 2, "the queues hold 129 descriptors together"},
           {{"/nowhere/at/all"}, 3, "cannot serve /nowhere/at/all: No such file or directory"},
           {{"/proc/self/stat"}, 2, "/proc/self/stat is not a directory; give an empty one"},
           {{other.path("")}, 6, "something is mounted on "}}) {
    const auto [line, ended] = run(arguments);
    EXPECT_EQ(ended, status) << line;
    EXPECT_TRUE(line.starts_with("headrace-dsa-sim: ")) << line;
    EXPECT_NE(line.find(says), std::string::npos) << line;
  }
  EXPECT_EQ(run({"--help"}).second, 0);
}

TEST_F(Main, TheMountPointOfADeadOne_IsRefused) {
  test::Emulator emulator;
  emulator.program().signal(SIGKILL);
  EXPECT_EQ(emulator.program().end(), 128 + SIGKILL);
  const auto [line, status] = run({emulator.path("")});
  EXPECT_NE(line.find("emulator that died; umount it first"), std::string::npos) << line;
  EXPECT_EQ(status, 6);
}

}  // namespace
}  // namespace headrace::emulator
