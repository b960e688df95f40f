// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "headrace/dsa.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

class ExamineDsa : public testing::Test {
 protected:
  ExamineDsa() {
    std::string name = (fs::temp_directory_path() / "headrace-examine-XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  ~ExamineDsa() override { fs::remove_all(root_); }

  void write(const std::string& name, const std::string& text) {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text << '\n';
  }
  void write_device() {
    for (const auto& [name, text] :
         std::initializer_list<std::pair<const char*, const char*>>{{"version", "0x100"},
                                                                    {"gen_cap", "0x40915f0107"},
                                                                    {"op_cap", "00000001,003f027d"},
                                                                    {"state", "enabled"},
                                                                    {"pasid_enabled", "1"}}) {
      write(std::string("dsa0/") + name, text);
    }
  }
  void write_queue() {
    for (const auto& [name, text] : std::initializer_list<std::pair<const char*, const char*>>{
             {"mode", "shared"},
             {"size", "16"},
             {"threshold", "16"},
             {"type", "user"},
             {"driver_name", "user"},
             {"state", "enabled"},
             {"max_transfer_size", "2097152"}}) {
      write(std::string("dsa0/wq0.0/") + name, text);
    }
  }
  DsaFinding examine() {
    const auto findings = examine_dsa({.sysfs = root_, .dev = root_ / "dev", .pci = root_ / "pci"});
    EXPECT_EQ(findings.size(), 1U);
    EXPECT_EQ(findings.front().why.find('\n'), std::string::npos);
    return findings.front();
  }

  fs::path root_;
};

TEST_F(ExamineDsa, AHostWithoutAny) { EXPECT_EQ(examine().state, DsaState::absent); }

TEST_F(ExamineDsa, ADeviceWithoutItsDriver) {
  write("pci/0000:6a:01.0/vendor", "0x8086");
  write("pci/0000:6a:01.0/device", "0x11fb");
  EXPECT_EQ(examine().state, DsaState::off);
  EXPECT_TRUE(examine().remedy.starts_with("sudo modprobe idxd"));
}

TEST_F(ExamineDsa, EachStepOnTheWayToAQueueHasItsRemedy) {
  write_device();
  write("dsa0/pasid_enabled", "0");
  EXPECT_NE(examine().remedy.find("VT-d"), std::string::npos);
  write("dsa0/pasid_enabled", "1");
  EXPECT_EQ(examine().remedy, "headrace dsa setup --show");
  write_queue();
  write("dsa0/wq0.0/type", "kernel");
  EXPECT_NE(examine().remedy.find("--type=user"), std::string::npos);
  write("dsa0/wq0.0/type", "user");
  EXPECT_NE(examine().why.find("cannot be opened"), std::string::npos) << examine().why;
}

// A plain file can be opened and written to, like the queue of an emulated device.
TEST_F(ExamineDsa, AQueueThatIsNoCharacterDeviceIsLimitedWithoutARemedy) {
  write_device();
  write_queue();
  write("dev/wq0.0", "");
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
  write_device();
  write_queue();
  fs::create_directories(root_ / "dev");
  fs::create_symlink("/dev/null", root_ / "dev/wq0.0");
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
  write_device();
  write_queue();
  write("dev/wq0.0", "");
  chmod((root_ / "dev/wq0.0").c_str(), 0);
  EXPECT_NE(examine().remedy.find("chown"), std::string::npos);
}

}  // namespace
}  // namespace headrace
