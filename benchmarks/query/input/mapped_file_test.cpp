// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/query/input/mapped_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "benchmarks/query/table_testing.h"

namespace headrace {
namespace {

using test::TempDirectory;
using test::write_file;

class MappedFileTest : public testing::Test {
 protected:
  std::unique_ptr<File> file_of(std::size_t bytes) {
    write_file(path_, std::string(bytes, 'x'));
    return File::open(machine_, path_).value();
  }

  TempDirectory directory_;
  std::filesystem::path path_ = directory_.path() / "column.bin";
  Machine machine_ = Machine::discover({.storage = {directory_.path()}}).value();
  // Two pages of any Linux page size, so that one can be cut off.
  const std::size_t bytes_ = 2 * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
};

TEST_F(MappedFileTest, ShowsTheFile) {
  const auto file = file_of(bytes_);
  const auto mapped = MappedFile::map(*file).value();
  ASSERT_EQ(mapped->bytes().size(), bytes_);
  EXPECT_EQ(mapped->bytes()[bytes_ - 1], std::byte{'x'});
  EXPECT_FALSE(mapped->lost());
}

TEST_F(MappedFileTest, AnEmptyFileIsEmpty) {
  const auto file = file_of(0);
  const auto mapped = MappedFile::map(*file).value();
  EXPECT_TRUE(mapped->bytes().empty());
  EXPECT_FALSE(mapped->lost());
}

TEST_F(MappedFileTest, WhatWasCutOffIsLostAndNotFatal) {
  const auto file = file_of(bytes_);
  const auto mapped = MappedFile::map(*file).value();
  const auto same = MappedFile::map(*file).value();
  std::filesystem::resize_file(path_, bytes_ / 2);
  EXPECT_EQ(mapped->bytes()[0], std::byte{'x'});
  EXPECT_FALSE(mapped->lost());
  EXPECT_EQ(mapped->bytes()[bytes_ - 1], std::byte{0});
  EXPECT_TRUE(mapped->lost());
  EXPECT_FALSE(same->lost());  // that page was not read yet
}

TEST_F(MappedFileTest, ThreadsLoseTheSamePageWithoutHarm) {
  const auto file = file_of(bytes_);
  const auto mapped = MappedFile::map(*file).value();
  std::filesystem::resize_file(path_, 0);
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&mapped, this] {
      for (std::size_t at = 0; at < bytes_; at += 64) {
        EXPECT_EQ(mapped->bytes()[at], std::byte{0});
      }
    });
  }
  threads.clear();
  EXPECT_TRUE(mapped->lost());
}

TEST_F(MappedFileTest, LeavesTheHandlerThatWasThere) {
  struct sigaction before = {};
  ::sigaction(SIGBUS, nullptr, &before);
  const auto file = file_of(bytes_);
  {
    const auto mapped = MappedFile::map(*file).value();
  }
  struct sigaction after = {};
  ::sigaction(SIGBUS, nullptr, &after);
  EXPECT_EQ(before.sa_sigaction, after.sa_sigaction);
}

TEST_F(MappedFileTest, TooManyAreRefused) {
  const auto file = file_of(bytes_);
  std::vector<std::unique_ptr<MappedFile>> mapped;
  for (int i = 0; i < 64; ++i) mapped.push_back(MappedFile::map(*file).value());
  EXPECT_EQ(MappedFile::map(*file).error().code, ErrorCode::exhausted);
  mapped.pop_back();
  EXPECT_TRUE(MappedFile::map(*file).has_value());
}

}  // namespace
}  // namespace headrace
