// SPDX-License-Identifier: Apache-2.0
// Moves of many pairs: one Transfer, the outcome of each pair.
#include <gtest/gtest.h>

#include "move/mover_testing.h"

namespace headrace {
namespace {

using test::by_hand;
using test::kCpuA;
using test::kCpuB;
using test::Rig;

std::vector<MovePair> pairs_of(const Rig& rig, std::size_t count, std::uint64_t length) {
  std::vector<MovePair> pairs;
  for (std::size_t i = 0; i < count; ++i) {
    pairs.push_back({rig.target(i * 4096, length), rig.source(i * 4096, length)});
  }
  return pairs;
}

ErrorCode code(const std::optional<Status>& status) {
  EXPECT_TRUE(status && !*status);
  return status && !*status ? status->error().code : ErrorCode{255};
}

TEST(MoverBatch, Batch_IsDoneOnceWithAllItsPairs) {
  Rig rig({.max_in_flight = 100}, by_hand());
  auto pairs = pairs_of(rig, 64, 4096);
  int told = 0;
  const Transfer transfer = rig.mover->copy(pairs);
  transfer.on_done([&](const auto&) { ++told; });
  pairs.clear();  // used during the call only
  EXPECT_EQ(transfer.size(), 64u);
  EXPECT_EQ(rig.fake->in_flight(), 16u) << "the bound of the link";
  EXPECT_TRUE(transfer.begun());
  EXPECT_FALSE(transfer.done() || transfer.poll(0));
  const auto outcome = transfer.wait();
  ASSERT_TRUE(outcome) << outcome.error().message;
  EXPECT_EQ(outcome->bytes, 256_KiB);
  EXPECT_EQ(outcome->pieces, 64u);
  EXPECT_EQ(outcome->engines, std::vector{kCpuA});
  EXPECT_EQ(told, 1);
  EXPECT_TRUE(rig.copied(0, 64 * 4096));
  EXPECT_EQ(rig.mover->stats().transfers, 64u);
  for (std::size_t i = 0; i < 64; ++i) EXPECT_TRUE(transfer.poll(i).value());
}

TEST(MoverBatch, TransferForEachPair_IsSubmittedWithTheOthers) {
  Rig rig({.max_in_flight = 100}, by_hand());
  auto pairs = pairs_of(rig, 5, 4096);
  pairs[3].from.length = 1_B;  // not the length of its target
  std::vector<Transfer> transfers(5);
  rig.mover->copy(pairs, transfers);
  EXPECT_EQ(rig.fake->stats().submits, 1u);
  EXPECT_EQ(rig.fake->stats().accepted, 4u);
  ASSERT_TRUE(transfers[3].done());
  EXPECT_EQ(code(transfers[3].poll(0)), ErrorCode::invalid);
  rig.fake->finish(1);
  EXPECT_TRUE(transfers[0].done());
  EXPECT_FALSE(transfers[1].done());
  transfers[1].cancel();
  for (const std::size_t i : {0u, 2u, 4u}) EXPECT_TRUE(transfers[i].wait());
  EXPECT_EQ(rig.mover->stats().transfers, 5u);
}

TEST(MoverBatch, FailedPair_StopsNoOther) {
  Rig rig({}, by_hand());
  auto pairs = pairs_of(rig, 5, 4096);
  pairs[1].from.length = 7_B;  // not of equal length
  pairs[2] = {};               // without an object
  pairs[3].to.length = pairs[3].from.length = 0_B;
  const Transfer transfer = rig.mover->copy(pairs);
  rig.fake->break_engine(kCpuB, Error{ErrorCode::io, "broken too"});
  const auto outcome = transfer.wait();
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code, ErrorCode::invalid);
  EXPECT_TRUE(
      outcome.error().message.starts_with("2 of 5 pairs failed, the first: cannot copy 7 bytes "))
      << outcome.error().message;
  EXPECT_TRUE(transfer.poll(0).value() && transfer.poll(3).value() && transfer.poll(4).value());
  EXPECT_EQ(code(transfer.poll(1)), ErrorCode::invalid);
  EXPECT_EQ(code(transfer.poll(2)), ErrorCode::invalid);
  EXPECT_TRUE(rig.copied(0, 4096) && rig.copied(4 * 4096, 4096));
}

TEST(MoverBatch, Cancel_EndsThePairsThatStillRun) {
  Rig rig({.max_in_flight = 2}, by_hand());
  const Transfer transfer = rig.mover->copy(pairs_of(rig, 200, 16));
  rig.fake->finish(1);
  transfer.cancel();
  EXPECT_FALSE(transfer.done());
  rig.fake->finish(2);
  ASSERT_TRUE(transfer.done());
  EXPECT_EQ(transfer.wait().error().code, ErrorCode::cancelled);
  EXPECT_TRUE(transfer.poll(0).value());
  for (std::size_t i = 1; i < 200; ++i) EXPECT_EQ(code(transfer.poll(i)), ErrorCode::cancelled);
}

TEST(MoverBatch, Promote_AppliesToAllPairs) {
  Rig rig({.max_in_flight = 1}, by_hand());
  const Transfer first = rig.copy(100 * 4096, 16);
  const Transfer other = rig.copy(101 * 4096, 16, {.priority = Priority::prefetch});
  const Transfer batch = rig.mover->copy(pairs_of(rig, 3, 16), {.priority = Priority::migration});
  batch.promote(Priority::demand);
  EXPECT_TRUE(other.wait());
  EXPECT_TRUE(batch.done());
}

TEST(MoverBatch, EmptyBatch_IsDoneAtOnce_LargeBatch_EndsThroughWaiters) {
  Rig rig({.inside_chance = 1}, by_hand());
  const Transfer none = rig.mover->copy(std::span<const MovePair>{});
  EXPECT_TRUE(none.done() && none.wait());
  EXPECT_EQ(none.size(), 0u);
  const Transfer many = rig.mover->copy(pairs_of(rig, 250, 16));
  EXPECT_FALSE(many.done()) << "copy() does no more than its share";
  EXPECT_EQ(many.wait()->bytes, Bytes{250 * 16});
  EXPECT_EQ(rig.copy(0, 16).size(), 1u);
}

TEST(MoverBatch, MoverDestroyed_EndsTheBatch) {
  Rig rig({.max_in_flight = 2}, by_hand());
  const Transfer transfer = rig.mover->copy(pairs_of(rig, 20, 16));
  rig.mover.reset();
  ASSERT_TRUE(transfer.done());
  EXPECT_EQ(transfer.wait().error().code, ErrorCode::cancelled);
  EXPECT_EQ(code(transfer.poll(19)), ErrorCode::cancelled);
}

}  // namespace
}  // namespace headrace
