// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/measuring_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include <unistd.h>

namespace headrace::instruments {
namespace {

class MeasuringFileTest : public testing::Test {
 protected:
  MeasuringFileTest() {
    std::string path = (std::filesystem::temp_directory_path() / "headrace-test-XXXXXX").string();
    directory_ = mkdtemp(path.data());
    machine_ = Machine::discover({.storage = {directory_}}).value();
  }
  ~MeasuringFileTest() override { std::filesystem::remove_all(directory_); }

  std::filesystem::path directory_;
  Machine machine_;
};

TEST_F(MeasuringFileTest, HasNoNameAndIsFilledOnceAndCold) {
  MeasuringFile lazy(machine_, directory_, false);
  const auto file = lazy.get();
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_TRUE(std::filesystem::is_empty(directory_));
  EXPECT_EQ((*file)->size(), kMeasuringFile);
  EXPECT_FALSE((*file)->direct());
  std::vector<std::byte> head(65536);
  ASSERT_EQ(pread((*file)->buffered_fd(), head.data(), head.size(), 0), 65536);
  EXPECT_NEAR(static_cast<double>(std::ranges::count(head, std::byte{0})), 256, 100)
      << "bytes that do not compress";
  const Status cold = make_cold(**file);  // unsupported on a file system in memory
  EXPECT_TRUE(cold || cold.error().code == ErrorCode::unsupported);
  EXPECT_EQ(lazy.get().value(), *file);
}

TEST_F(MeasuringFileTest, SlowDisk_IsGivenUpWithTheReason) {
  for (const bool direct : {false, true}) {
    MeasuringFile slow(machine_, directory_, direct);
    const auto file = slow.get(Nanoseconds{1});
    ASSERT_FALSE(file);
    if (direct && file.error().message.find("no direct I/O") != std::string::npos) continue;
    EXPECT_EQ(file.error().code, ErrorCode::unsupported);
    EXPECT_NE(file.error().message.find("give a larger budget"), std::string::npos)
        << file.error().message;
    EXPECT_EQ(slow.get().error(), file.error()) << "it is not tried again without a limit";
    EXPECT_TRUE(std::filesystem::is_empty(directory_));
  }
}

TEST_F(MeasuringFileTest, SaysWhatToDoWhereItCannotBeMade) {
  const auto missing = MeasuringFile(machine_, directory_ / "none", true).get();
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::absent);
  EXPECT_NE(missing.error().message.find("give a directory that can be written to"),
            std::string::npos);
}

}  // namespace
}  // namespace headrace::instruments
