// SPDX-License-Identifier: Apache-2.0
// A waiting thread helps the backends that can use its time.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "move/mover_testing.h"

namespace headrace {
namespace {

using test::kCpuA;

// Its pieces end only while a thread waits for them.
class NeedsHelp final : public Backend {
 public:
  NeedsHelp() {
    facts_.name = "helped";
    facts_.engines = {kCpuA};
    facts_.max_piece = 1_MiB;
    facts_.max_in_flight = 8;
    facts_.helps = true;
  }
  const Capabilities& capabilities() const override { return facts_; }
  Result<std::size_t> submit(std::span<const Piece> pieces, Completion& completion) override {
    if (submitting) std::exchange(submitting, nullptr)();
    for (const Piece& piece : pieces) open_.push_back({piece, &completion});
    return pieces.size();
  }
  std::size_t help(std::span<const std::byte> to, Nanoseconds most) override {
    asked.push_back(most);
    const auto found = std::ranges::find_if(
        open_, [&](const Open& open) { return open.piece.to.memory() == to.data(); });
    if (found == open_.end()) return 0;
    const auto [piece, completion] = *found;
    open_.erase(found);
    std::memcpy(piece.to.memory(), piece.from.memory(), piece.from.length.value);
    completion->complete(piece.tag, {});
    return 1;
  }
  void cancel(EngineId engine) noexcept override {
    EXPECT_EQ(engine, kCpuA);
    ++cancels;
  }
  // The destinations of its cancelled pieces.
  std::vector<const std::byte*> cancelled() const {
    std::vector<const std::byte*> all;
    for (const Open& open : open_) {
      if (open.piece.cancelled != nullptr && *open.piece.cancelled)
        all.push_back(open.piece.to.memory());
    }
    return all;
  }

  std::vector<Nanoseconds> asked;
  std::function<void()> submitting;  // called once, before pieces are accepted
  int cancels = 0;

 private:
  struct Open {
    Piece piece;
    Completion* completion;
  };
  Capabilities facts_;
  std::vector<Open> open_;
};

class MoverHelp : public testing::Test {
 protected:
  MoverHelp() {
    auto backend = std::make_unique<NeedsHelp>();
    backend_ = backend.get();
    backends_.add(std::move(backend));
    mover_.emplace(machine_, backends_);
  }
  Transfer copy(const MemoryRange& to) { return mover_->copy(whole(to), whole(from_)); }

  const Machine machine_ = test::small_machine();
  std::vector<std::byte> a_ = test::random_bytes(4096, 1);
  std::vector<std::byte> b_ = std::vector<std::byte>(4096);
  std::vector<std::byte> c_ = std::vector<std::byte>(4096);
  MemoryRange from_{a_, test::kDram};
  MemoryRange to_{b_, test::kHbm};
  MemoryRange other_{c_, test::kHbm};
  Backends backends_;
  NeedsHelp* backend_ = nullptr;
  std::optional<Mover> mover_;
};

TEST_F(MoverHelp, Wait_HelpsWithItsOwnMoveOnly) {
  const Transfer first = copy(to_);
  const Transfer second = copy(other_);
  ASSERT_TRUE(second.wait());
  EXPECT_EQ(a_, c_);
  EXPECT_EQ(backend_->asked.size(), 1U);
  EXPECT_FALSE(first.done());
  ASSERT_TRUE(first.wait());
  EXPECT_EQ(a_, b_);
}

TEST_F(MoverHelp, Wait_HelpsNoLongerThanItsTimeout) {
  const Transfer transfer = copy(to_);
  EXPECT_EQ(transfer.wait(Nanoseconds{0}).error().code, ErrorCode::timed_out);
  EXPECT_EQ(mover_->poll(), 0U);
  EXPECT_EQ(mover_->poll({}, std::chrono::seconds{1}), 0U);
  EXPECT_TRUE(backend_->asked.empty());
  EXPECT_EQ(mover_->poll(c_, std::chrono::seconds{1}), 0U);
  EXPECT_FALSE(transfer.done());
  EXPECT_EQ(mover_->poll(b_, std::chrono::seconds{1}), 1U);
  ASSERT_EQ(backend_->asked.size(), 2U);
  EXPECT_LE(backend_->asked.back(), std::chrono::milliseconds{100});
  EXPECT_TRUE(transfer.done());
  const Transfer another = copy(to_);
  ASSERT_TRUE(another.wait(std::chrono::hours{1}));
  EXPECT_LE(backend_->asked.back(), std::chrono::milliseconds{100});
}

// Another thread may call cancel() after a piece was taken and before it is accepted.
TEST_F(MoverHelp, CancelDuringTheSubmission_ReachesTheBackend) {
  mover_.emplace(machine_, backends_, MoverOptions{.in_flight_per_link = 1_B});
  const Transfer first = copy(to_);
  const Transfer second = copy(other_);
  backend_->submitting = [&] { second.cancel(); };
  ASSERT_TRUE(first.wait());
  EXPECT_EQ(backend_->cancelled(), std::vector<const std::byte*>{c_.data()});
  EXPECT_EQ(second.wait().error().code, ErrorCode::cancelled);
}

TEST_F(MoverHelp, Cancel_AsksTheBackendToEndPiecesInFlight) {
  const Transfer first = copy(to_);
  const Transfer second = copy(other_);
  first.cancel();
  EXPECT_EQ(backend_->cancelled(), std::vector<const std::byte*>{b_.data()});
  EXPECT_EQ(backend_->cancels, 1);
  EXPECT_FALSE(first.done());
  EXPECT_EQ(first.wait().error().code, ErrorCode::cancelled);
  first.cancel();
  EXPECT_EQ(backend_->cancels, 1) << "it has ended";
  ASSERT_TRUE(second.wait());
}

}  // namespace
}  // namespace headrace
