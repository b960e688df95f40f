// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "headrace/dsa.h"
#include "tests/support/dsa_sysfs.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

class ExamineDsa : public testing::Test {
 protected:
  DsaFinding examine() const {
    const dsa::Roots roots = sysfs_.roots();
    const auto findings =
        examine_dsa({.sysfs = roots.sysfs, .dev = roots.dev, .pci = sysfs_.root() / "pci"});
    EXPECT_EQ(findings.size(), 1U);
    EXPECT_EQ(findings.front().why.find('\n'), std::string::npos);
    return findings.front();
  }
  void remove(const char* name) const { fs::remove_all(sysfs_.root() / name); }

  const test::SysfsTree sysfs_;
};

TEST_F(ExamineDsa, EachStepOnTheWayToAQueueHasItsRemedy) {
  EXPECT_NE(examine().why.find("cannot be opened"), std::string::npos) << examine().why;
  sysfs_.write("dsa0/wq0.0/type", "kernel");
  EXPECT_NE(examine().remedy.find("--type=user"), std::string::npos);
  remove("dsa0/wq0.0");
  EXPECT_EQ(examine().remedy, "headrace dsa setup --show");
  sysfs_.write("dsa0/pasid_enabled", "0");
  EXPECT_NE(examine().remedy.find("VT-d"), std::string::npos);
  remove("dsa0");
  EXPECT_EQ(examine().state, DsaState::absent);
  sysfs_.write("pci/0000:6a:01.0/vendor", "0x8086");
  sysfs_.write("pci/0000:6a:01.0/device", "0x11fb");
  EXPECT_EQ(examine().state, DsaState::off);
  EXPECT_TRUE(examine().remedy.starts_with("sudo modprobe idxd"));
}

// A plain file can be opened and written to, like the queue of an emulated device.
TEST_F(ExamineDsa, AQueueThatIsNoCharacterDeviceIsLimitedWithoutARemedy) {
  sysfs_.write("dev/wq0.0", "");
  const DsaFinding found = examine();
  EXPECT_EQ(found.name, "dsa0");
  EXPECT_EQ(found.state, DsaState::limited) << found.why;
  EXPECT_NE(found.why.find("no character device"), std::string::npos) << found.why;
  EXPECT_EQ(found.remedy, "") << "no capability makes hardware of it";
}

// /dev/null accepts any write() and cannot be mapped, like a queue's file for a process without the
// capability. setcap is advised only if the CPU could map the portal and the process lacks the
// capability.
TEST_F(ExamineDsa, SetcapIsAdvisedOnlyWhereItHelps) {
  fs::create_directories(sysfs_.root() / "dev");
  fs::create_symlink("/dev/null", sysfs_.root() / "dev/wq0.0");
  const DsaFinding found = examine();
  if (found.state == DsaState::ready) GTEST_SKIP() << "this system maps /dev/null";
  EXPECT_EQ(found.state, DsaState::limited) << found.why;
  const bool no_instruction = found.why.find("this CPU has no ENQCMD") != std::string::npos;
  const bool has_capability = found.why.find("the kernel refuses") != std::string::npos;
  if (no_instruction || has_capability) {
    EXPECT_EQ(found.remedy, "") << found.why;
  }
  std::ifstream cpus("/proc/cpuinfo");
  const std::string flags((std::istreambuf_iterator<char>(cpus)), {});
  EXPECT_EQ(no_instruction, flags.find(" enqcmd") == std::string::npos);
}

TEST_F(ExamineDsa, AQueueOfOthersIsDenied) {
  if (geteuid() == 0) GTEST_SKIP() << "root may open everything";
  sysfs_.write("dev/wq0.0", "");
  chmod((sysfs_.root() / "dev/wq0.0").c_str(), 0);
  EXPECT_NE(examine().remedy.find("chown"), std::string::npos);
}

}  // namespace
}  // namespace headrace
