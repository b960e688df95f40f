// SPDX-License-Identifier: Apache-2.0
#include "cache/shards/syncs.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "core/fail.h"
#include "tests/support/folder.h"
#include "tests/support/machines.h"

namespace headrace {
namespace {

using namespace test;

// A file whose syncs end when the test lets them.
class SyncsTest : public ::testing::Test {
 protected:
  SyncsTest()
      : file_(open()), syncs_(system_waiting(), [this](const File&) {
          ++begun_;
          while (!open_.load()) std::this_thread::yield();
          return outcome_;
        }) {}

  Status sync(Nanoseconds timeout = std::chrono::seconds{60}, bool wrote = true) {
    Patience patience(system_clock(), system_waiting(), timeout);
    const auto take = [&](const Syncs::Add& add) {
      if (wrote) add(*file_);
    };
    return syncs_.sync(take, nullptr, patience, nullptr);
  }
  Status forget(Nanoseconds timeout) {
    Patience patience(system_clock(), system_waiting(), timeout);
    return syncs_.forget(file_->id(), patience);
  }
  void await_begin(unsigned syncs) const {
    while (begun_.load() < syncs) std::this_thread::yield();
  }

  std::unique_ptr<File> open() const {
    folder_.write("file", "bytes");
    return *File::open(machine_, folder_.at("file"));
  }

  const Machine machine_ = small_machine();
  TestFolder folder_;
  std::unique_ptr<File> file_;
  std::atomic<unsigned> begun_{0};
  std::atomic<bool> open_{false};
  Status outcome_;
  Syncs syncs_;
};

constexpr Nanoseconds kShort = std::chrono::milliseconds{20};

ErrorCode code_of(const Status& status) { return status ? ErrorCode::absent : status.error().code; }

TEST_F(SyncsTest, WaitsForAnotherThreadsSync_HaveABound) {
  std::jthread first([&] { EXPECT_TRUE(sync()); });
  await_begin(1);
  EXPECT_EQ(code_of(sync(kShort)), ErrorCode::timed_out);
  EXPECT_EQ(code_of(sync(kShort, false)), ErrorCode::timed_out);
  EXPECT_EQ(code_of(forget(kShort)), ErrorCode::timed_out);
  EXPECT_EQ(syncs_.pending(), std::vector{file_->id()});
  open_ = true;
  EXPECT_TRUE(forget(std::chrono::seconds{60}));
  first.join();
  EXPECT_TRUE(syncs_.pending().empty());
}

TEST_F(SyncsTest, CallsDuringASync_ShareTheNextOne) {
  std::vector<std::jthread> threads;
  threads.emplace_back([&] { EXPECT_TRUE(sync()); });
  await_begin(1);
  EXPECT_EQ(code_of(sync(Nanoseconds{0})), ErrorCode::timed_out) << "it has taken the file";
  std::atomic<int> ended{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      EXPECT_TRUE(sync(std::chrono::seconds{60}, false));
      EXPECT_EQ(begun_.load(), 2u) << "a sync that began after the write";
      ++ended;
    });
  }
  EXPECT_EQ(ended.load(), 0);
  open_ = true;
  threads.clear();
  EXPECT_EQ(begun_.load(), 2u);
  EXPECT_TRUE(syncs_.pending().empty());
}

TEST_F(SyncsTest, SyncOfAFileThatWasTakenBefore_WaitsForThatOneOnly) {
  std::jthread first([&] { EXPECT_TRUE(sync()); });
  await_begin(1);
  std::jthread second([&] { EXPECT_TRUE(sync(std::chrono::seconds{60}, false)); });
  open_ = true;
  first.join();
  second.join();
  EXPECT_EQ(begun_.load(), 1u);
}

TEST_F(SyncsTest, FailedSync_IsReportedUntilTheFileIsForgotten) {
  open_ = true;
  outcome_ = fail(ErrorCode::io, "the disk is gone");
  EXPECT_EQ(code_of(sync()), ErrorCode::io);
  outcome_ = {};
  EXPECT_EQ(code_of(sync()), ErrorCode::io);
  EXPECT_EQ(begun_.load(), 1u);
  EXPECT_TRUE(forget(kShort));
  EXPECT_TRUE(sync());
  EXPECT_EQ(begun_.load(), 2u);
}

}  // namespace
}  // namespace headrace
