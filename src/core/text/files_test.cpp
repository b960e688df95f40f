// SPDX-License-Identifier: Apache-2.0
#include "core/text/files.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "tests/support/child.h"

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

TEST_F(FilesTest, EndlessFile_IsNotRead) {
  ASSERT_EQ(mkfifo((directory_ / "pipe").c_str(), 0600), 0);
  std::filesystem::create_symlink("pipe", directory_ / "link");
  for (const std::filesystem::path& path :
       {directory_ / "pipe", directory_ / "link", std::filesystem::path("/dev/zero"), directory_}) {
    const auto text = read_file(path);
    ASSERT_FALSE(text.has_value()) << path;
    EXPECT_EQ(text.error().code, ErrorCode::invalid) << text.error().message;
  }
}

// Files of /proc have size 0; reading some of them (kmsg) takes messages from other readers.
TEST_F(FilesTest, ADocumentHasASize) {
  std::ofstream(directory_ / "empty");
  std::ofstream(directory_ / "file") << "text";
  for (const std::filesystem::path& path :
       {directory_ / "empty", std::filesystem::path("/proc/self/status")}) {
    ASSERT_TRUE(read_file(path).has_value());
    const auto text = read_document(path);
    ASSERT_FALSE(text.has_value()) << path;
    EXPECT_EQ(text.error().code, ErrorCode::invalid);
    EXPECT_NE(text.error().message.find("is empty"), std::string::npos);
  }
  EXPECT_EQ(read_document(directory_ / "file").value(), "text");
  EXPECT_EQ(read_document(directory_ / "file", 3_B).error().code, ErrorCode::invalid);
  EXPECT_EQ(read_document(directory_ / "none").error().code, ErrorCode::absent);
}

TEST_F(FilesTest, AFileLargerThanAllowedIsRefused) {
  std::ofstream(directory_ / "file") << std::string(1000, 'x');
  EXPECT_EQ(read_file(directory_ / "file", 1000_B).value().size(), 1000u);
  EXPECT_EQ(read_file(directory_ / "file", 999_B).error().code, ErrorCode::invalid);
  EXPECT_EQ(read_file(directory_ / "none").error().code, ErrorCode::absent);
  // Its size is 0 until it is read.
  EXPECT_NE(read_file("/proc/self/status").value(), "");
}

TEST_F(FilesTest, TheFirstLineIsBounded) {
  std::ofstream(directory_ / "lines") << "one\ntwo\n";
  std::ofstream(directory_ / "line") << "one";
  std::ofstream(directory_ / "empty");
  std::ofstream(directory_ / "long") << std::string(kLongestLine.value + 1, 'x');
  ASSERT_EQ(mkfifo((directory_ / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(first_line(directory_ / "lines"), "one");
  EXPECT_EQ(first_line(directory_ / "line"), "one");
  EXPECT_EQ(first_line(directory_ / "empty"), "");
  EXPECT_EQ(first_line(directory_ / "long").size(), kLongestLine.value);
  EXPECT_EQ(first_line(directory_ / "pipe"), "");
  EXPECT_EQ(first_line(directory_ / "none"), "");
  EXPECT_TRUE(first_line("/proc/stat").starts_with("cpu "));
}

TEST_F(FilesTest, DanglingLink_CreatesItsTarget) {
  std::filesystem::create_symlink("file", directory_ / "link");
  ASSERT_TRUE(write_file_at_once(directory_ / "link", "new").has_value());
  EXPECT_TRUE(std::filesystem::is_symlink(directory_ / "link"));
  EXPECT_EQ(read_file(directory_ / "file").value(), "new");
}

TEST_F(FilesTest, ALinkStaysALink) {
  std::ofstream(directory_ / "file") << "old";
  std::filesystem::create_symlink("file", directory_ / "link");
  ASSERT_TRUE(write_file_at_once(directory_ / "link", "new").has_value());
  EXPECT_TRUE(std::filesystem::is_symlink(directory_ / "link"));
  EXPECT_EQ(read_file(directory_ / "file").value(), "new");
}

TEST_F(FilesTest, NameOfMaximalLength_IsWritten) {
  const auto path = directory_ / std::string(255, 'a');
  ASSERT_TRUE(write_file_at_once(path, "text").has_value());
  EXPECT_EQ(read_file(path).value(), "text");
}

TEST_F(FilesTest, SpecialFile_IsWrittenInPlace) {
  const auto path = directory_ / "fifo";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  std::string found(4, ' ');
  std::thread reader([&] { std::ifstream(path).read(found.data(), 4); });
  EXPECT_TRUE(write_file_at_once(path, "text").has_value());
  reader.join();
  EXPECT_EQ(found, "text");
  EXPECT_TRUE(std::filesystem::is_fifo(path));
}

TEST_F(FilesTest, WithoutADraftTheOldFileStays) {
  std::ofstream(directory_ / "file") << "old";
  // All possible names of a draft.
  for (int i = 0; i < 100; ++i) {
    std::ofstream(directory_ / (".headrace-" + std::to_string(getpid()) + "-" + std::to_string(i)));
  }
  const Status written = write_file_at_once(directory_ / "file", "new");
  ASSERT_FALSE(written.has_value());
  EXPECT_NE(written.error().message.find("remove the files .headrace-*"), std::string::npos);
  EXPECT_EQ(read_file(directory_ / "file").value(), "old");
}

// Like a host's file in a container.
TEST_F(FilesTest, MountPoint_IsWrittenInPlace) {
  constexpr int kSkipped = 77;
  const auto file = directory_ / "file";
  std::ofstream(directory_ / "outside") << "old and longer";
  std::ofstream{file};
  const int status = test::status_of_child([&] {
    const bool mounted =
        unshare(CLONE_NEWNS) == 0 &&
        mount("none", "/", nullptr, MS_PRIVATE | MS_REC, nullptr) == 0 &&
        mount((directory_ / "outside").c_str(), file.c_str(), nullptr, MS_BIND, nullptr) == 0;
    if (!mounted) _exit(kSkipped);
    return write_file_at_once(file, "new").has_value();
  });
  if (WIFEXITED(status) && WEXITSTATUS(status) == kSkipped) GTEST_SKIP() << "no mounts of its own";
  EXPECT_EQ(status, 0);
  EXPECT_EQ(read_file(directory_ / "outside").value(), "new");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_), {}), 2);
}

TEST_F(FilesTest, MountPointWithoutSpace_KeepsItsText) {
  constexpr int kSkipped = 77;
  const auto file = directory_ / "file";
  const auto full = directory_ / "full";
  std::ofstream{file};
  std::filesystem::create_directory(full);
  const int status = test::status_of_child([&] {
    const bool mounted = unshare(CLONE_NEWNS) == 0 &&
                         mount("none", "/", nullptr, MS_PRIVATE | MS_REC, nullptr) == 0 &&
                         mount("none", full.c_str(), "tmpfs", 0, "size=4k") == 0;
    if (!mounted) _exit(kSkipped);
    std::ofstream(full / "outside") << "old";
    if (mount((full / "outside").c_str(), file.c_str(), nullptr, MS_BIND, nullptr) != 0)
      return false;
    const std::string larger(3 << 12, 'x');
    return !write_file_at_once(file, larger) && read_file(file).value() == "old" &&
           write_file_at_once(file, "new") && read_file(file).value() == "new";
  });
  if (WIFEXITED(status) && WEXITSTATUS(status) == kSkipped) GTEST_SKIP() << "no mounts of its own";
  EXPECT_EQ(status, 0);
}

TEST_F(FilesTest, AFailureLeavesTheOldFileAndNoDraft) {
  std::filesystem::create_directory(directory_ / "taken");
  EXPECT_FALSE(write_file_at_once(directory_ / "taken", "text").has_value());
  EXPECT_TRUE(std::filesystem::is_directory(directory_ / "taken"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_), {}), 1);
}

}  // namespace
}  // namespace headrace
