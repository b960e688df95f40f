// SPDX-License-Identifier: Apache-2.0
// Many pairs between a GPU and memory as pieces of lists, and threads that look for themselves.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "core/fail.h"
#include "move/mover_testing.h"

namespace headrace {
namespace {

constexpr NodeId kGpu{kFirstGpuNode};
constexpr EngineId kGpuEngine{3};

Machine machine_with_gpu() {
  Machine machine = test::small_machine();
  machine.nodes.push_back({.id = kGpu, .kind = NodeKind::gpu, .reason = "test", .name = "gpu"});
  machine.engines.push_back({.id = EngineId{static_cast<std::uint32_t>(machine.engines.size())},
                             .kind = EngineKind::gpu,
                             .name = "gpu0",
                             .home = kGpu,
                             .reason = "test"});
  return machine;
}

// Accepts pieces, and ends them when a thread looks.
class Lists final : public Backend {
 public:
  Lists() {
    facts_.name = "lists";
    facts_.engines = {kGpuEngine};
    facts_.max_piece = 64_MiB;
    facts_.max_in_flight = 64;
    facts_.piece = 64_KiB;
    facts_.in_flight = 128_KiB;
    facts_.looks = true;
    facts_.lists = true;
  }
  const Capabilities& capabilities() const override { return facts_; }
  Result<std::size_t> submit(std::span<const Piece> pieces, Completion& completion) override {
    for (const Piece& piece : pieces) open.push_back({piece, &completion});
    return pieces.size();
  }
  std::size_t list(EngineId engine, std::span<const MovePair> pairs, Bytes most) override {
    EXPECT_EQ(engine, kGpuEngine);
    asked = most;
    spans.push_back(pairs.size());
    return std::min(pairs.size(), takes);
  }
  Look look(Nanoseconds most) override {
    looked.push_back(most);
    if (looked.size() < found_by || open.empty()) return {.again = std::chrono::microseconds{10}};
    const auto [piece, completion] = open.front();
    open.erase(open.begin());
    Status outcome;
    if (piece.list != nullptr) {
      for (std::size_t i = 0; i < piece.list->parts.size(); ++i) {
        if (i != failing) continue;
        piece.list->failed[i] = 1;
        outcome = fail(ErrorCode::io, "part {}", i);
      }
    }
    if (fails_all) outcome = fail(ErrorCode::io, "all of it");
    completion->complete(piece.tag, std::move(outcome));
    return {.found = 1};
  }

  struct Open {
    Piece piece;
    Completion* completion;
  };
  std::vector<Open> open;
  std::size_t takes = SIZE_MAX;
  std::size_t failing = SIZE_MAX;
  bool fails_all = false;
  std::size_t found_by = 1;  // the number of the look that finds them
  std::vector<Nanoseconds> looked;
  Bytes asked;
  std::vector<std::size_t> spans;  // the numbers of pairs that list() was asked for

 private:
  Capabilities facts_;
};

class MoverLists : public testing::Test {
 protected:
  MoverLists() {
    auto backend = std::make_unique<Lists>();
    lists_ = backend.get();
    backends_.add(std::move(backend));
    mover_.emplace(machine_, backends_);
  }
  // Ends all pieces, also after a failed assertion: nothing but look() ends them, so the Mover
  // would wait for its shutdown bound.
  ~MoverLists() override {
    while (!lists_->open.empty()) lists_->look(Nanoseconds{0});
  }
  std::vector<MovePair> pairs(std::size_t count, std::uint64_t bytes = 4096) const {
    std::vector<MovePair> made;
    for (std::size_t i = 0; i < count; ++i) {
      made.push_back({.to = whole(gpu_).part(i * bytes, Bytes{bytes}),
                      .from = whole(host_).part(i * bytes, Bytes{bytes})});
    }
    return made;
  }

  const Machine machine_ = machine_with_gpu();
  std::vector<std::byte> bytes_ = std::vector<std::byte>(1 << 20);
  MemoryRange host_{bytes_, test::kDram};
  DeviceRange gpu_{1 << 20, 1_MiB, kGpu};
  Backends backends_;
  Lists* lists_ = nullptr;
  std::optional<Mover> mover_;
};

TEST_F(MoverLists, ListedPairs_AreOnePieceUpToTheEnginesPiece) {
  const Transfer transfer = mover_->copy(pairs(40));
  EXPECT_EQ(transfer.size(), 40U);
  ASSERT_EQ(lists_->open.size(), 2U) << "128 KiB in flight";
  EXPECT_EQ(lists_->asked, 64_KiB);
  ASSERT_NE(lists_->open[0].piece.list, nullptr);
  EXPECT_EQ(lists_->open[0].piece.list->parts.size(), 16U);
  EXPECT_FALSE(transfer.poll(0));
  const auto moved = transfer.wait();
  ASSERT_TRUE(moved) << moved.error().message;
  EXPECT_EQ(moved->bytes, 160_KiB);
  EXPECT_EQ(moved->pieces, 3U);
  EXPECT_EQ(mover_->stats().transfers, 40U);
  for (std::size_t i = 0; i < 40; ++i) EXPECT_TRUE(transfer.poll(i).value());
}

TEST_F(MoverLists, FailedPair_StopsNoOther) {
  lists_->failing = 3;
  const Transfer transfer = mover_->copy(pairs(12));
  const auto moved = transfer.wait();
  ASSERT_FALSE(moved);
  EXPECT_EQ(moved.error().message, "1 of 12 pairs failed, the first: part 3");
  for (std::size_t i = 0; i < 12; ++i) EXPECT_EQ(transfer.poll(i)->has_value(), i != 3) << i;
  EXPECT_EQ(mover_->stats().failed, 1U);
  EXPECT_EQ(mover_->stats().bytes, 44_KiB);
}

// Ends all pieces at once.
class WithoutLists final : public Backend {
 public:
  WithoutLists() {
    facts_.name = "plain";
    facts_.engines = {EngineId{4}};
    facts_.max_piece = 64_MiB;
    facts_.max_in_flight = 64;
  }
  const Capabilities& capabilities() const override { return facts_; }
  Result<std::size_t> submit(std::span<const Piece> pieces, Completion& completion) override {
    for (const Piece& piece : pieces) {
      (piece.list == nullptr ? single : lists) += 1;
      completion.complete(piece.tag, {});
    }
    return pieces.size();
  }
  std::size_t single = 0;
  std::size_t lists = 0;

 private:
  Capabilities facts_;
};

TEST_F(MoverLists, FailedList_IsNotGivenToABackendWithoutLists) {
  Machine machine = machine_with_gpu();
  machine.engines.push_back(machine.engines.back());
  machine.engines.back().id = EngineId{4};
  machine.engines.back().name = "gpu1";
  auto backend = std::make_unique<WithoutLists>();
  WithoutLists& other = *backend;
  backends_.add(std::move(backend));
  mover_.emplace(machine, backends_);
  lists_->fails_all = true;
  EXPECT_FALSE(mover_->copy(pairs(12)).wait());
  EXPECT_EQ(other.lists, 0U);
  const RoutePolicy by_lists = [](const Machine&, const RouteRequest& request) -> Result<Route> {
    return Route{{{.length = request.bytes, .engine = kGpuEngine}}};
  };
  EXPECT_TRUE(mover_->copy(pairs(1), {.route = by_lists}).wait()) << "a single pair is retried";
  EXPECT_EQ(other.single, 1U);
  mover_.reset();
}

TEST_F(MoverLists, FailureWithoutMarks_FailsAllPairsOfTheList) {
  lists_->fails_all = true;
  const Transfer transfer = mover_->copy(pairs(12));
  EXPECT_EQ(transfer.wait().error().message, "12 of 12 pairs failed, the first: all of it");
  EXPECT_EQ(transfer.poll(11)->error().code, ErrorCode::io);
  EXPECT_EQ(mover_->stats().failed, 12U);
}

TEST_F(MoverLists, InvalidPair_IsInNoList) {
  auto some = pairs(8);
  some[2].from.length = 7_B;
  const Transfer transfer = mover_->copy(some);
  ASSERT_EQ(lists_->open.size(), 2U);
  EXPECT_EQ(lists_->open[0].piece.list->parts.size(), 2U);
  EXPECT_EQ(lists_->open[1].piece.list->parts.size(), 5U);
  EXPECT_EQ(transfer.wait().error().code, ErrorCode::invalid);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(transfer.poll(i)->has_value(), i != 2) << i;
}

TEST_F(MoverLists, BackendWithoutLists_GetsPairsOneByOne) {
  lists_->takes = 1;
  const Transfer transfer = mover_->copy(pairs(4));
  ASSERT_EQ(lists_->open.size(), 4U);
  EXPECT_EQ(lists_->open[0].piece.list, nullptr);
  ASSERT_TRUE(transfer.wait());
}

// A longer question for each pair would take quadratic time.
TEST_F(MoverLists, RefusedPairs_AreAskedForByTwos) {
  lists_->takes = 1;
  const Transfer transfer = mover_->copy(pairs(64, 16));
  EXPECT_EQ(lists_->spans, std::vector<std::size_t>(63, 2));
  ASSERT_TRUE(transfer.wait());
}

TEST_F(MoverLists, ListedPairs_AreAtMost4096) {
  const Transfer transfer = mover_->copy(pairs(5000, 1));
  EXPECT_EQ(std::ranges::max(lists_->spans), 4096U);
  ASSERT_EQ(lists_->open.size(), 2U);
  EXPECT_EQ(lists_->open[0].piece.list->parts.size(), 4096U);
  ASSERT_TRUE(transfer.wait());
}

TEST_F(MoverLists, EmptyPair_IsInNoList) {
  auto some = pairs(8);
  some[3].to.length = some[3].from.length = 0_B;
  const Transfer transfer = mover_->copy(some);
  ASSERT_EQ(lists_->open.size(), 2U);
  EXPECT_EQ(lists_->open[0].piece.list->parts.size(), 3U);
  EXPECT_EQ(lists_->open[1].piece.list->parts.size(), 4U);
  EXPECT_EQ(std::ranges::max(lists_->spans), 4U);
  ASSERT_TRUE(transfer.wait());
}

TEST_F(MoverLists, Cancel_EndsQueuedLists) {
  const Transfer transfer = mover_->copy(pairs(64));
  transfer.cancel();
  EXPECT_EQ(lists_->open.size(), 2U);
  EXPECT_EQ(transfer.wait().error().code, ErrorCode::cancelled);
  EXPECT_EQ(transfer.poll(63)->error().code, ErrorCode::cancelled);
  EXPECT_EQ(mover_->stats().cancelled, 64U);
}

TEST_F(MoverLists, Wait_LooksAgainWhenTheBackendAsks) {
  lists_->found_by = 3;
  const Transfer transfer = mover_->copy(whole(gpu_).part(0, 4_KiB), whole(host_).part(0, 4_KiB));
  ASSERT_TRUE(transfer.wait());
  EXPECT_EQ(lists_->looked.size(), 3U);
  EXPECT_EQ(transfer.wait(Nanoseconds{0}).has_value(), true);
}

TEST_F(MoverLists, OverlapInGpuMemory_IsInvalid) {
  const DeviceRange same(1 << 20, 1_MiB, kGpu);
  const auto refused = mover_->copy(whole(gpu_).part(0, 100_B), whole(same).part(99, 100_B)).wait();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::invalid);
}

TEST_F(MoverLists, DefaultOptions_UseTheEnginesPiece) {
  const Transfer usual = mover_->copy(whole(gpu_), whole(host_));
  ASSERT_EQ(lists_->open.size(), 2U);
  EXPECT_EQ(lists_->open[0].piece.from.length, 64_KiB);
  ASSERT_TRUE(usual.wait());
  mover_.emplace(machine_, backends_, MoverOptions{.piece = 16_KiB, .in_flight_per_link = 16_KiB});
  const Transfer stated = mover_->copy(whole(gpu_).part(0, 64_KiB), whole(host_).part(0, 64_KiB));
  ASSERT_EQ(lists_->open.size(), 1U);
  EXPECT_EQ(lists_->open[0].piece.from.length, 16_KiB);
  ASSERT_TRUE(stated.wait());
}

}  // namespace
}  // namespace headrace
