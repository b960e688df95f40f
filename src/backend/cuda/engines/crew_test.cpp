// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/engines/crew.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <filesystem>
#include <thread>
#include <tuple>
#include <vector>

#include "backend/cuda/engines/lane_testing.h"
#include "tests/support/bytes.h"
#include "tests/support/container.h"

namespace headrace::cuda {
namespace {

TEST(Crew, DoesEachTaskOnce_AndAllBeforeItEnds) {
  std::vector<Task> tasks(1000);
  std::vector<std::atomic<int>> done(tasks.size());
  {
    const auto crew = Crew::start(
        {}, [&](Task& task) { ++done[static_cast<std::size_t>(&task - tasks.data())]; });
    for (Task& task : tasks) crew->give(task);
  }
  for (const std::atomic<int>& each : done) EXPECT_EQ(each, 1);
}

class ReadCached : public testing::Test {
 protected:
  static constexpr std::size_t kBytes = 3 << 20;
  ReadCached() : path_("headrace-crew-" + std::to_string(getpid())) {
    const int file = open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
    EXPECT_EQ(write(file, bytes_.data(), kBytes), static_cast<ssize_t>(kBytes));
    fsync(file);
    close(file);
    file_ = File::open(machine_, path_).value();
  }
  ~ReadCached() override { std::filesystem::remove(path_); }
  Cached read(std::uint64_t offset, std::size_t bytes) {
    into_.assign(bytes, std::byte{0});
    return read_cached(*file_, offset, into_);
  }

  const std::filesystem::path path_;
  const std::vector<std::byte> bytes_ = test::random_bytes(kBytes, 1);
  std::vector<std::byte> into_;
  const Machine machine_ = test::small_machine();
  std::unique_ptr<File> file_;
};

TEST_F(ReadCached, WhatIsInThePageCacheIsRead) {
  const Cached whole = read(0, kBytes);
  if (whole == Cached::never) GTEST_SKIP() << "this kernel has no cachestat";
  EXPECT_EQ(whole, Cached::read);
  EXPECT_EQ(into_, bytes_);
  EXPECT_EQ(read(4095, 70001), Cached::read);
  EXPECT_TRUE(std::equal(into_.begin(), into_.end(), bytes_.begin() + 4095));
}

TEST_F(ReadCached, WhatIsNotIsLeftToTheDevice) {
  if (read(0, 4096) == Cached::never) GTEST_SKIP() << "this kernel has no cachestat";
  ASSERT_TRUE(file_->drop_page_cache().has_value());
  const auto left = file_->page_cache_residency();
  if (!left || *left > 0_B) GTEST_SKIP() << "this file system keeps its pages";
  EXPECT_EQ(read(0, kBytes), Cached::absent);
  EXPECT_EQ(into_, std::vector<std::byte>(kBytes, std::byte{0}));
  EXPECT_EQ(*file_->page_cache_residency(), 0_B) << "asking has read nothing ahead";
}

TEST_F(ReadCached, OneFileThatIsDeniedSaysNothingAboutOthers_AndEvictedPagesAreNotWaitedFor) {
  if (read(0, kBytes) != Cached::read) GTEST_SKIP() << "this kernel has no cachestat";
  constexpr unsigned kCachestat = 451;
  for (const auto& [call, error, expected] : {std::tuple{kCachestat, EPERM, Cached::absent},
                                              {kCachestat, ENOSYS, Cached::never},
                                              {unsigned{SYS_preadv2}, EAGAIN, Cached::absent},
                                              {unsigned{SYS_preadv2}, EOPNOTSUPP, Cached::read}}) {
    std::thread([&] {
      test::forbid_call(call, error);
      EXPECT_EQ(read(0, kBytes), expected) << call << " " << error;
    }).join();
  }
}

}  // namespace
}  // namespace headrace::cuda
