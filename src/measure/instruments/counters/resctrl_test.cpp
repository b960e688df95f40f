// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/counters/resctrl.h"

#include <gtest/gtest.h>

#include "tests/support/fake_host.h"

namespace headrace::instruments {
namespace {

const std::string kMounted = "sys/fs/resctrl/";

// A plain directory stands for the file system.
class ResctrlTest : public testing::Test {
 protected:
  ResctrlTest() {
    host_.write(kMounted + "info/L3_MON/mon_features",
                "llc_occupancy\nmbm_total_bytes\nmbm_local_bytes");
    set("mon_L3_00", "1000");
    set("mon_L3_01", "500");
  }
  void set(const std::string& cache, const std::string& text) {
    host_.write(kMounted + "mon_data/" + cache + "/mbm_total_bytes", text);
    host_.write(kMounted + "mon_data/" + cache + "/mbm_local_bytes", "7");
  }
  auto open() { return open_resctrl(host_.at("sys/fs/resctrl")); }

  test::FakeHost host_;
};

TEST_F(ResctrlTest, CountsTheBytesOfAllCachesAndPrograms) {
  const auto counter = open();
  ASSERT_TRUE(counter) << counter.error().message;
  EXPECT_DOUBLE_EQ((*counter)->bytes().value(), 1500);
  EXPECT_EQ((*counter)->words(), "resctrl mbm_total_bytes of 2 caches, of all programs");
  for (const NodeKind kind : {NodeKind::dram, NodeKind::hbm, NodeKind::cxl}) {
    EXPECT_TRUE((*counter)->counts({.kind = kind})) << to_string(kind);
  }
  for (const char* word : {"Unavailable", "Error", "Unassigned", ""}) {
    set("mon_L3_01", word);
    EXPECT_FALSE((*counter)->bytes()) << word << " is not zero";
  }
}

TEST_F(ResctrlTest, LocalBytesWhereThatIsAllThereIs) {
  host_.write(kMounted + "info/L3_MON/mon_features", "llc_occupancy\nmbm_local_bytes");
  const auto counter = open();
  ASSERT_TRUE(counter);
  EXPECT_DOUBLE_EQ((*counter)->bytes().value(), 14);
}

TEST_F(ResctrlTest, SaysWhyThereIsNothingAndWhatToDo) {
  std::filesystem::remove_all(host_.at(kMounted + "mon_data"));
  EXPECT_EQ(open().error().code, ErrorCode::denied);
  host_.write(kMounted + "info/L3_MON/mon_features", "llc_occupancy");
  EXPECT_EQ(open().error().code, ErrorCode::unsupported);
  std::filesystem::remove_all(host_.at(kMounted + "info"));
  EXPECT_NE(open().error().message.find("sudo mount -t resctrl"), std::string::npos);
  std::filesystem::remove_all(host_.at("sys/fs/resctrl"));
  EXPECT_EQ(open().error().code, ErrorCode::absent);
}

}  // namespace
}  // namespace headrace::instruments
