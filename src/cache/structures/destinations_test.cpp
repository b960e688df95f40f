// SPDX-License-Identifier: Apache-2.0
#include "cache/structures/destinations.h"

#include <gtest/gtest.h>

#include <map>
#include <tuple>

namespace headrace {
namespace {

TEST(DestinationsTest, Find_GivesTheAnswerToThisQuestionOrNone) {
  DestinationMemory memory;
  std::map<std::tuple<unsigned, int, unsigned>, std::uint16_t> asked;
  std::uint16_t answer = 0;
  for (unsigned source = 0; source < 12; ++source) {
    for (int initiator = -1; initiator < 12; ++initiator) {
      for (unsigned c = 0; c < 63; ++c) asked[{source, initiator, c}] = answer++;
    }
  }
  const auto by = [](int initiator) {
    return initiator < 0 ? std::nullopt : std::optional(NodeId{static_cast<unsigned>(initiator)});
  };
  std::size_t known = 0;
  for (const auto& [question, node] : asked) {
    const auto& [source, initiator, c] = question;
    EXPECT_FALSE(memory.find(NodeId{source}, by(initiator), std::uint64_t{1} << c));
    memory.remember(NodeId{source}, by(initiator), std::uint64_t{1} << c, node);
    EXPECT_EQ(memory.find(NodeId{source}, by(initiator), std::uint64_t{1} << c), node);
  }
  for (const auto& [question, node] : asked) {
    const auto& [source, initiator, c] = question;
    const auto found = memory.find(NodeId{source}, by(initiator), std::uint64_t{1} << c);
    EXPECT_EQ(found.value_or(node), node);
    known += found.has_value();
  }
  EXPECT_GT(known, 100u);
  EXPECT_LE(known, 256u);
}

TEST(DestinationsTest, NumbersThatAreTooLargeAreNotRemembered) {
  DestinationMemory memory;
  for (const unsigned large : {(1U << 20) - 1, 1U << 20, ~0U}) {
    memory.remember(NodeId{large}, NodeId{0}, 1, 7);
    memory.remember(NodeId{0}, NodeId{large}, 1, 7);
    EXPECT_FALSE(memory.find(NodeId{large}, NodeId{0}, 1));
    EXPECT_FALSE(memory.find(NodeId{0}, NodeId{large}, 1));
  }
  EXPECT_FALSE(memory.find(NodeId{0}, std::nullopt, 1));
}

}  // namespace
}  // namespace headrace
