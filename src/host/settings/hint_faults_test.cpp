// SPDX-License-Identifier: Apache-2.0
#include "host/settings/hint_faults.h"

#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <optional>

#include "core/text/files.h"
#include "host/settings/state_file.h"
#include "tests/support/child.h"
#include "tests/support/folder.h"

namespace headrace {
namespace {

class Held : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(directory_);
    std::filesystem::create_directories(setting().parent_path());
    set("0\n");
  }
  std::filesystem::path setting() const { return root_ / kNumaBalancing; }
  void set(const char* value) { std::ofstream(setting()) << value; }
  HostFiles files() const { return HostFiles(root_); }
  std::string value() const { return first_line(setting()); }
  auto take(HintFaults::Set set = HintFaults::Set::if_need_be) {
    return HintFaults::take(directory_, set, files());
  }

  // A child takes hint faults and is killed.
  void take_and_be_killed() {
    ASSERT_TRUE(test::is_killed_with([&] { return take(); }));
    ASSERT_EQ(value(), "1");
  }
  const test::TestFolder folder_;
  const std::filesystem::path root_ = folder_.root();
  const std::filesystem::path directory_ = root_ / kStateFolder;
};

TEST_F(Held, HintFaults_AreOnWhileHeld) {
  auto one = std::make_unique<Result<HintFaults>>(take());
  ASSERT_TRUE(*one) << one->error().message;
  EXPECT_EQ(value(), "1");
  auto two = std::make_unique<Result<HintFaults>>(take());
  ASSERT_TRUE(*two);
  EXPECT_FALSE(restore_hint_faults(directory_, files())) << "held";
  one.reset();
  EXPECT_EQ(value(), "1") << "the second holds them";
  two.reset();
  EXPECT_EQ(value(), "0");
}

TEST_F(Held, OtherBitsAndForeignChanges_Stay) {
  struct Case {
    const char *before, *held, *meanwhile, *after, *note;
  };
  for (const Case& each : {Case{"0", "1", "", "0", "off as it was"},
                           {"1", "1", "", "1", "stays"},
                           {"3", "3", "", "3", "stays"},
                           // Promotion alone sees nothing in DRAM.
                           {"2", "3", "", "2", "2 as it was"},
                           {"soon", "soon", "", "soon", ""},
                           {"0", "1", "2", "2", ""},
                           {"0", "1", "3", "2", ""},
                           {"2", "3", "1", "0", ""}}) {
    SCOPED_TRACE(std::string(each.before) + " " + each.meanwhile);
    set(each.before);
    {
      const auto held = take();
      ASSERT_TRUE(held);
      EXPECT_TRUE(held->note().contains(each.note)) << held->note();
      EXPECT_EQ(value(), each.held);
      if (*each.meanwhile != 0) set(each.meanwhile);
    }
    EXPECT_EQ(value(), each.after);
    EXPECT_FALSE(restore_hint_faults(directory_, files()));
    EXPECT_EQ(value(), each.after);
  }
}

TEST_F(Held, SettingsOfAKilledHolder_AreRestoredByTheNext) {
  take_and_be_killed();
  EXPECT_TRUE(restore_hint_faults(directory_, files()));
  EXPECT_EQ(value(), "0");
  EXPECT_FALSE(restore_hint_faults(directory_, files())) << "once";
  take_and_be_killed();
  {
    const auto held = take();
  }
  EXPECT_EQ(value(), "0") << "one who comes after takes over what was before, not what he found";
}

TEST_F(Held, SettingThatCannotBeRestored_StaysRecorded) {
  take_and_be_killed();
  set("soon\n");
  EXPECT_FALSE(restore_hint_faults(directory_, files()));
  set("1\n");
  EXPECT_TRUE(restore_hint_faults(directory_, files()));
  EXPECT_EQ(value(), "0");
}

TEST_F(Held, BitThatIsNotToBeSet_IsTakenOnlyWhereItIsSet) {
  const auto refused = take(HintFaults::Set::never);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::absent);
  EXPECT_EQ(value(), "0");
  set("3\n");
  {
    const auto held = take(HintFaults::Set::never);
    ASSERT_TRUE(held);
    EXPECT_EQ(value(), "3");
  }
  EXPECT_EQ(value(), "3");
}

TEST_F(Held, OtherBitsSetMeanwhile_AreSeenAndSetWithoutTheHeldOne) {
  const auto mode = [&] { return read_own_setting(files(), kNumaBalancing).value(); };
  {
    const auto held = take();
    EXPECT_EQ(value(), "1");
    EXPECT_EQ(mode(), "0");
    ASSERT_TRUE(write_own_setting(files(), kNumaBalancing, "2"));
    EXPECT_EQ(value(), "3") << "the holder needs its bit";
    EXPECT_EQ(mode(), "2");
  }
  EXPECT_EQ(value(), "2");
  EXPECT_EQ(mode(), "2");
}

TEST_F(Held, BitOfAKilledHolder_IsClearedByTheNextWrite) {
  take_and_be_killed();
  EXPECT_EQ(read_own_setting(files(), kNumaBalancing).value(), "0");
  ASSERT_TRUE(write_own_setting(files(), kNumaBalancing, "2"));
  EXPECT_EQ(value(), "2");
  EXPECT_FALSE(restore_hint_faults(directory_, files()));
}

// Python lets other threads run meanwhile, and ends the wait by Ctrl-C.
TEST_F(Held, WaitForALockOfAnother_PausesAsItsFilesDo) {
  struct Pausing final : HostFiles {
    using HostFiles::HostFiles;
    void pause(Nanoseconds) const override { held.reset(); }
    mutable std::optional<OwnDescriptor> held;
  } mine(root_);
  mine.held = open_locked(directory_ / "hint-faults.lock", LOCK_EX).value();
  ASSERT_TRUE(write_own_setting(mine, kNumaBalancing, "2"));
  EXPECT_FALSE(mine.held.has_value());
  EXPECT_EQ(value(), "2");
}

TEST_F(Held, KernelWithoutHintFaults_IsReported) {
  std::filesystem::remove(setting());
  const auto held = take();
  ASSERT_FALSE(held);
  EXPECT_EQ(held.error().code, ErrorCode::absent);
}

}  // namespace
}  // namespace headrace
