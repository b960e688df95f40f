// SPDX-License-Identifier: Apache-2.0
// A query whose disk stops answering returns an error with its reason, at once when stopped, and
// frees nothing that the disk may still write to.
#include <gtest/gtest.h>

#include <thread>

#include "benchmarks/query/query.h"
#include "benchmarks/query/table_testing.h"
#include "core/mutex.h"
#include "tests/support/manual_waiting.h"

namespace headrace {
namespace {

// Accepts every piece, and ends them all as failed only on command.
class SilentBackend final : public Backend {
 public:
  explicit SilentBackend(EngineId engine) {
    facts_ = {.name = "silent", .engines = {engine}, .max_piece = 64_MiB, .max_in_flight = 8};
  }
  const Capabilities& capabilities() const override { return facts_; }

  Result<std::size_t> submit(std::span<const Piece> pieces, Completion& completion) override {
    {
      const MutexLock lock(mutex_);
      if (!answers_) {
        for (const Piece& piece : pieces) held_.emplace_back(piece, &completion);
        return pieces.size();
      }
    }
    for (const Piece& piece : pieces) end(piece, completion);
    return pieces.size();
  }
  void answer() {
    std::vector<std::pair<Piece, Completion*>> held;
    {
      const MutexLock lock(mutex_);
      answers_ = true;
      held.swap(held_);
    }
    for (auto& [piece, completion] : held) end(piece, *completion);
  }

 private:
  // Writes first, as a device does: under AddressSanitizer the memory must still exist.
  static void end(const Piece& piece, Completion& completion) {
    *piece.to.memory() = std::byte{1};
    completion.complete(piece.tag, Unexpected(Error{ErrorCode::io, "too late"}));
  }

  Capabilities facts_;
  Mutex mutex_;
  bool answers_ GUARDED_BY(mutex_) = false;
  std::vector<std::pair<Piece, Completion*>> held_ GUARDED_BY(mutex_);
};

// Parameter: a mode, or nothing for the floor of the transfer.
class StallTest : public testing::TestWithParam<std::optional<QueryMode>> {
 protected:
  StallTest() {
    EngineId disk{};
    for (const Engine& engine : machine_.engines) {
      if (engine.kind == EngineKind::ssd) disk = engine.id;
    }
    auto silent = std::make_unique<SilentBackend>(disk);
    silent_ = silent.get();
    backends_.add(std::move(silent));
    mover_.emplace(machine_, backends_,
                   MoverOptions{.clock = &clock_, .waiting = &waiting_, .poller = false});
  }

  // The error of the run, in which `stop` returns true from its `stop_after`-th call on.
  Error run(int stop_after) {
    QueryOptions options;
    options.slow = machine_.of_kind(NodeKind::storage).at(0)->id;
    options.fast = machine_.of_kind(NodeKind::dram).at(0)->id;
    options.block = 32_KiB;
    options.budget = 4_MiB;
    options.threads = 2;
    options.stop = [asked = 0, stop_after]() mutable { return asked++ >= stop_after; };
    auto keep = std::make_shared<int>();
    kept_ = keep;
    options.keep = std::move(keep);
    if (!GetParam()) return measure_transfer_floor(*table_, *mover_, options).error();
    options.mode = *GetParam();
    return run_query(*table_, *mover_, options).error();
  }
  // The disk answers again: the resources left behind are released.
  void expect_left_behind_until_the_disk_answers() {
    EXPECT_FALSE(kept_.expired());
    table_.reset();
    silent_->answer();
    for (int i = 0; i < 30'000 && !kept_.expired(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    EXPECT_TRUE(kept_.expired());
  }

  const test::TempDirectory directory_;
  const Machine machine_ = Machine::discover({.storage = {directory_.path()}}).value();
  const test::Lineitem lineitem_{directory_.path(), 50'021};
  std::optional<Table> table_ = Table::open(machine_, directory_.path()).value();
  ManualClock clock_;
  test::ManualWaiting waiting_{clock_};
  Backends backends_;
  SilentBackend* silent_ = nullptr;
  std::optional<Mover> mover_;
  std::weak_ptr<int> kept_;
};

TEST_P(StallTest, IsAnErrorWithItsReason) {
  const Error error = run(1'000'000'000);
  EXPECT_EQ(error.code, ErrorCode::timed_out) << error.message;
  EXPECT_TRUE(error.message.starts_with("nothing came from storage node 1000")) << error.message;
  expect_left_behind_until_the_disk_answers();
}

TEST_P(StallTest, IsLeftWhenStopped) {
  const Error error = run(10);
  EXPECT_EQ(error.code, ErrorCode::cancelled) << error.message;
  expect_left_behind_until_the_disk_answers();
}

INSTANTIATE_TEST_SUITE_P(Modes, StallTest,
                         testing::Values(QueryMode::resident, QueryMode::direct,
                                         QueryMode::prefetch, std::nullopt),
                         [](const auto& each) {
                           return std::string(each.param ? to_string(*each.param) : "floor");
                         });

}  // namespace
}  // namespace headrace
