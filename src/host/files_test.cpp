// SPDX-License-Identifier: Apache-2.0
#include "host/files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>

#include "tests/support/folder.h"

namespace headrace {
namespace {

// Busy or refused as often as the test says.
struct Disturbed final : HostFiles {
  using HostFiles::HostFiles;
  int read_once(const std::string& name, std::string& text) const override {
    return times-- > 0 ? error : HostFiles::read_once(name, text);
  }
  int write_once(const std::string& name, const std::string& value) const override {
    return times-- > 0 ? error : HostFiles::write_once(name, value);
  }
  void pause(Nanoseconds) const override { ++pauses; }
  int error = EBUSY;
  mutable int times = 0;
  mutable int pauses = 0;
};

class HostFilesTest : public testing::Test {
 protected:
  void put(const std::string& name, const std::string& text) const { folder_.write(name, text); }
  const test::TestFolder folder_;
  const std::filesystem::path root_ = folder_.root();
};

TEST_F(HostFilesTest, Text_IsReadWithoutBlanksAndSwitchesAsDigits) {
  const HostFiles files(root_);
  for (const auto& [text, read] : {std::pair{" 12 \n", "12"},
                                   {"always [never]\n", "always [never]"},
                                   {"Y\n", "1"},
                                   {"N\n", "0"},
                                   {"true\n", "1"},
                                   {"false\n", "0"},
                                   {"\n", ""}}) {
    put("sys/setting", text);
    EXPECT_EQ(files.read("sys/setting").value(), read);
  }
  put("proc/long", std::string(100'000, 'x'));
  EXPECT_EQ(files.text("proc/long").size(), 100'000u);
  EXPECT_EQ(files.read("proc/none").error().code, ErrorCode::absent);
  EXPECT_EQ(files.text("proc/none"), "");
}

// Python compares paths as text, and "//run" is not below "/".
TEST_F(HostFilesTest, PathBelowTheRoot_HasOneSlash) {
  EXPECT_EQ(HostFiles("/").path("run/headrace").native(), "/run/headrace");
  EXPECT_EQ(HostFiles("/").path("sys/x").native(), "/sys/x");
  EXPECT_EQ(HostFiles("/a").path("run").native(), "/a/run");
}

TEST_F(HostFilesTest, Write_MakesNoFile) {
  const HostFiles files(root_);
  EXPECT_EQ(files.write("sys/setting", "1").error().code, ErrorCode::absent);
  put("sys/setting", "17\n");
  ASSERT_TRUE(files.write("sys/setting", "1"));
  EXPECT_EQ(files.text("sys/setting"), "1");
}

TEST_F(HostFilesTest, BusyFile_IsTriedAgainWithinABound) {
  put("sys/setting", "1\n");
  Disturbed files(root_);
  files.times = 3;
  EXPECT_EQ(files.read("sys/setting").value(), "1");
  files.times = 3;
  EXPECT_TRUE(files.write("sys/setting", "2"));
  EXPECT_EQ(files.pauses, 6);
  files.busy_bound = Nanoseconds{0};
  files.times = 1;
  EXPECT_EQ(files.read("sys/setting").error().code, ErrorCode::exhausted);
  files.times = 1;
  EXPECT_EQ(files.write("sys/setting", "3").error().code, ErrorCode::exhausted);
  EXPECT_EQ(files.text("sys/setting"), "2");
}

TEST_F(HostFilesTest, FileOfRoot_SaysWhatToDo) {
  Disturbed files(root_);
  files.error = EACCES;
  files.times = 1;
  EXPECT_EQ(files.read("sys/setting").error().message, "only root may read /sys/setting; use sudo");
}

TEST_F(HostFilesTest, Names_AreThoseOfThePatternInOrderOfNumbers) {
  for (const char* const name : {"sys/node10/a", "sys/node2/a", "sys/node2/b", "sys/other/a"}) {
    put(name, "");
  }
  const HostFiles files(root_);
  using Names = std::vector<std::string>;
  EXPECT_EQ(files.names("sys/node[0-9]*/a").value(), (Names{"sys/node2/a", "sys/node10/a"}));
  EXPECT_EQ(files.names("sys/node2/*").value(), (Names{"sys/node2/a", "sys/node2/b"}));
  EXPECT_TRUE(files.names("sys/none/*").value().empty());
  const HostFiles elsewhere(root_ / "sys", {});
  EXPECT_EQ(elsewhere.names("sys/node*/b").value(), Names{"sys/node2/b"});
  std::filesystem::create_symlink("round", root_ / "sys/round");
  EXPECT_FALSE(files.names("sys/round/*"));
  EXPECT_FALSE(files.names("sys/round/a"));
}

}  // namespace
}  // namespace headrace
