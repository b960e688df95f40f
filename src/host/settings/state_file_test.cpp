// SPDX-License-Identifier: Apache-2.0
#include "host/settings/state_file.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

namespace headrace {
namespace {

class StateFiles : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "headrace_state_XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    directory_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::filesystem::path directory_;
};

TEST_F(StateFiles, OneHoldsAFileAndSaysWhatIsToBePutBack) {
  const auto held = open_locked(directory_ / "state", LOCK_EX | LOCK_NB);
  ASSERT_TRUE(held) << held.error().message;
  EXPECT_EQ(text_of(*held), "");
  for (const char* const text : {"mode 12\n", "0\n"}) {
    ASSERT_TRUE(note(*held, text));
    EXPECT_EQ(text_of(*held), text);
  }
  const auto second = open_locked(directory_ / "state", LOCK_EX | LOCK_NB);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::exhausted);
}

TEST_F(StateFiles, LockThatIsNeverFree_EndsTheWait) {
  const auto held = open_locked(directory_ / "state", LOCK_EX);
  ASSERT_TRUE(held);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    const auto second = open_locked(directory_ / "state", LOCK_EX, std::chrono::milliseconds{50});
    ::_exit(!second && second.error().code == ErrorCode::timed_out ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(StateFiles, FileOfAnotherUser_IsNotTrusted) {
  if (::geteuid() != 0) GTEST_SKIP() << "takes root, to give a file away";
  std::ofstream(directory_ / "state") << "0";
  ASSERT_EQ(::chown((directory_ / "state").c_str(), 65534, 65534), 0);
  const auto held = open_locked(directory_ / "state", LOCK_EX);
  ASSERT_FALSE(held);
  EXPECT_EQ(held.error().code, ErrorCode::denied);
  std::filesystem::create_symlink("/dev/null", directory_ / "link");
  EXPECT_FALSE(open_locked(directory_ / "link", LOCK_EX));
}

}  // namespace
}  // namespace headrace
