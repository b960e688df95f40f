// SPDX-License-Identifier: Apache-2.0
// Block lives as slices, and the probes of user space.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "headrace/cache/observe.h"
#include "tests/support/cache_rig.h"
#include "tests/support/folder.h"

namespace headrace {
namespace {

using namespace test;
using nlohmann::json;

std::string content(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// The names of slices that began and of instants. Each slice ends, after it began.
std::map<std::string, int> names(const json& events) {
  std::map<std::string, int> found;
  std::map<std::string, std::pair<std::string, double>> open;
  for (const json& event : events) {
    const std::string id = event["id"], name = event["name"], phase = event["ph"];
    if (phase == "e") {
      EXPECT_EQ(open[id].first, name);
      EXPECT_GE(event["ts"].get<double>(), open[id].second);
      open.erase(id);
      if (event["args"].contains("end")) ++found["end " + std::string(event["args"]["end"])];
      continue;
    }
    ++found[name];
    if (phase != "b") continue;
    EXPECT_TRUE(open.try_emplace(id, name, event["ts"].get<double>()).second);
  }
  EXPECT_TRUE(open.empty());
  return found;
}

TEST(CacheTraceTest, LivesOfBlocks_AreSlicesThatEnd) {
  const TestFolder folder;
  auto trace = CacheTrace::create(folder.root() / "blocks.json");
  ASSERT_TRUE(trace);
  {
    CacheRig rig({.fake = {.own_thread = true},
                  .cache = {.observer = (*trace)->observer()},
                  .budget = 64_KiB,
                  .observe = false});
    const Source source(1 << 20);
    for (std::uint64_t i = 0; i < 40; ++i) {
      ASSERT_TRUE(rig.cache->access(source.at(i * 4096, 4096)).wait());
    }
    ASSERT_TRUE(rig.cache->access(source.at(39 * 4096, 4096)).wait());
    rig.cache->invalidate(source.at(39 * 4096, 1));
  }
  ASSERT_TRUE((*trace)->close());
  const auto found = names(json::parse(content(folder.root() / "blocks.json")));
  EXPECT_EQ(found.at("fill"), 40);
  EXPECT_EQ(found.at("ready"), 40);
  EXPECT_EQ(found.at("miss"), 40);
  EXPECT_EQ(found.at("hit"), 1);
  EXPECT_EQ(found.at("end invalidated"), 1);
  EXPECT_GT(found.at("end evicted"), 20);
}

CacheEvent event(CacheEvent::Kind kind, std::uint64_t offset) {
  return {.kind = kind, .extent = {nullptr, offset, 1_KiB}, .time = Nanoseconds{offset}};
}

TEST(CacheTraceTest, EventsBeyondTheLimit_AreLeftOutAndCounted) {
  const TestFolder folder;
  const auto path = folder.root() / "blocks.json";
  auto trace = CacheTrace::create(path, 1000_B);
  ASSERT_TRUE(trace);
  const auto observer = (*trace)->observer();
  for (std::uint64_t i = 0; i < 100; ++i) observer(event(CacheEvent::Kind::fill_started, i));
  const Status closed = (*trace)->close();
  ASSERT_FALSE(closed);
  EXPECT_EQ(closed.error().code, ErrorCode::exhausted);
  EXPECT_NE(closed.error().message.find("events were left out"), std::string::npos);
  const json events = json::parse(content(path));
  EXPECT_LT(events.size(), 20U);
  names(events);
  EXPECT_TRUE((*trace)->close());
}

TEST(CacheTraceTest, NoEvents_AreAnEmptyList) {
  const TestFolder folder;
  {
    ASSERT_TRUE(CacheTrace::create(folder.root() / "blocks.json"));
  }
  EXPECT_EQ(json::parse(content(folder.root() / "blocks.json")), json::array());
  const auto none = CacheTrace::create(folder.root() / "absent" / "blocks.json");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::absent);
}

TEST(CacheTraceTest, FullDevice_IsAnErrorOfClose) {
  auto trace = CacheTrace::create("/dev/full");
  ASSERT_TRUE(trace);
  (*trace)->observer()(event(CacheEvent::Kind::miss, 1));
  EXPECT_FALSE((*trace)->close());
}

TEST(CacheTraceTest, DestructorSaysWhatCloseWouldHaveSaid) {
  auto trace = CacheTrace::create("/dev/full");
  ASSERT_TRUE(trace);
  (*trace)->observer()(event(CacheEvent::Kind::miss, 1));
  testing::internal::CaptureStderr();
  trace->reset();
  EXPECT_EQ(testing::internal::GetCapturedStderr().find("headrace: cannot write /dev/full"), 0U);
}

TEST(CacheTraceTest, ChildOfFork_WritesNothing) {
  const TestFolder folder;
  auto trace = CacheTrace::create(folder.root() / "blocks.json");
  ASSERT_TRUE(trace);
  (*trace)->observer()(event(CacheEvent::Kind::miss, 1));
  const pid_t child = ::fork();
  if (child == 0) {
    (*trace)->observer()(event(CacheEvent::Kind::miss, 2));
    ::_exit((*trace)->close() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(content(folder.root() / "blocks.json"), "");
  ASSERT_TRUE((*trace)->close());
  EXPECT_EQ(json::parse(content(folder.root() / "blocks.json")).size(), 1U);
}

#if __has_include(<sys/sdt.h>)
TEST(ProbeTest, BlockProbe_IsInThisProgram) {
  const std::string program = content("/proc/self/exe");
  EXPECT_NE(program.find(std::string("headrace\0block\0", 15)), std::string::npos);
}
#endif

}  // namespace
}  // namespace headrace
