// SPDX-License-Identifier: Apache-2.0
#include "host/settings/state_file.h"

#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <fstream>

#include "tests/support/child.h"
#include "tests/support/folder.h"

namespace headrace {
namespace {

class StateFiles : public testing::Test {
 protected:
  const test::TestFolder folder_;
  const std::filesystem::path directory_ = folder_.root();
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
  EXPECT_EQ(test::status_of_child([&] {
              HostFiles files;
              files.lock_bound = std::chrono::milliseconds{50};
              const auto second = open_locked(directory_ / "state", LOCK_EX, files);
              return !second && second.error().code == ErrorCode::timed_out;
            }),
            0);
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
