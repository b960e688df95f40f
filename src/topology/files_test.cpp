#include "topology/files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace headrace {
namespace {

class FilesTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directory(directory_); }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::filesystem::path directory_ =
      std::filesystem::temp_directory_path() / ("files-" + std::to_string(getpid()));
};

TEST_F(FilesTest, WhatIsWrittenIsRead) {
  const std::string text(100'000, 'x');
  ASSERT_TRUE(write_file_at_once(directory_ / "new", text).has_value());
  EXPECT_EQ(read_file(directory_ / "new").value(), text);
}

TEST_F(FilesTest, ALinkStaysALink) {
  std::ofstream(directory_ / "file") << "old";
  std::filesystem::create_symlink("file", directory_ / "link");
  ASSERT_TRUE(write_file_at_once(directory_ / "link", "new").has_value());
  EXPECT_TRUE(std::filesystem::is_symlink(directory_ / "link"));
  EXPECT_EQ(read_file(directory_ / "file").value(), "new");
}

TEST_F(FilesTest, WhatIsNoFileIsWrittenToAndStaysWhatItIs) {
  ASSERT_TRUE(write_file_at_once("/dev/null", "text").has_value());
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

TEST_F(FilesTest, AFailureLeavesTheOldFileAndNoDraft) {
  std::filesystem::create_directory(directory_ / "taken");
  EXPECT_FALSE(write_file_at_once(directory_ / "taken", "text").has_value());
  EXPECT_TRUE(std::filesystem::is_directory(directory_ / "taken"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_), {}), 1);
}

}  // namespace
}  // namespace headrace
