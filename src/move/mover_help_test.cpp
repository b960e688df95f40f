// SPDX-License-Identifier: Apache-2.0
// A thread that waits gives its time to the backends that can use it.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "move/mover_testing.h"

namespace headrace {
namespace {

using test::kCpuA;

// Its pieces end when somebody helps, and only then.
class NeedsHelp final : public Backend {
 public:
  NeedsHelp() {
    facts_.name = "helped";
    facts_.engines = {kCpuA};
    facts_.max_piece = 1_MiB;
    facts_.max_in_flight = 8;
  }
  const Capabilities& capabilities() const override { return facts_; }
  Result<std::size_t> submit(std::span<const Piece> pieces, Completion& completion) override {
    for (const Piece& piece : pieces) open_.push_back({piece, &completion});
    return pieces.size();
  }
  std::size_t help(Nanoseconds most) override {
    asked.push_back(most);
    if (open_.empty()) return 0;
    const auto [piece, completion] = open_.back();
    open_.pop_back();
    std::memcpy(piece.to.memory(), piece.from.memory(), piece.from.length.value);
    completion->complete(piece.tag, {});
    return 1;
  }

  std::vector<Nanoseconds> asked;

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
  Transfer copy() { return mover_->copy(whole(to_), whole(from_)); }

  const Machine machine_ = test::small_machine();
  std::vector<std::byte> a_ = test::random_bytes(4096, 1);
  std::vector<std::byte> b_ = std::vector<std::byte>(4096);
  MemoryRange from_{a_, test::kDram};
  MemoryRange to_{b_, test::kHbm};
  Backends backends_;
  NeedsHelp* backend_ = nullptr;
  std::optional<Mover> mover_;
};

TEST_F(MoverHelp, WhoWaitsHelpsUntilItsMoveIsDone) {
  const Transfer first = copy();
  const Transfer second = copy();
  ASSERT_TRUE(first.wait());
  EXPECT_EQ(a_, b_);
  EXPECT_EQ(backend_->asked.size(), 2U) << "the second was helped first";
  EXPECT_TRUE(second.done());
}

TEST_F(MoverHelp, NoLongerThanItMayWait) {
  const Transfer transfer = copy();
  EXPECT_EQ(transfer.wait(Nanoseconds{0}).error().code, ErrorCode::timed_out);
  EXPECT_EQ(mover_->poll(), 0U);
  EXPECT_TRUE(backend_->asked.empty());
  EXPECT_EQ(mover_->poll(std::chrono::seconds{1}), 1U);
  ASSERT_EQ(backend_->asked.size(), 1U);
  EXPECT_LE(backend_->asked.back(), std::chrono::milliseconds{1});
  EXPECT_TRUE(transfer.done());
  const Transfer another = copy();
  ASSERT_TRUE(another.wait(std::chrono::hours{1}));
  EXPECT_LE(backend_->asked.back(), std::chrono::milliseconds{1});
}

}  // namespace
}  // namespace headrace
