// SPDX-License-Identifier: Apache-2.0
#include "topology/discovery/facts.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace headrace {
namespace {

TEST(OverridesTest, ReadsListsOfNodesWithKinds) {
  const auto overrides = parse_overrides("8-10=hbm,2=cxl,3,5=gpu", std::nullopt);
  ASSERT_TRUE(overrides) << overrides.error().message;
  ASSERT_EQ(overrides->size(), 6u);
  EXPECT_EQ(overrides->at(9).kind, NodeKind::hbm);
  EXPECT_EQ(overrides->at(2).kind, NodeKind::cxl);
  EXPECT_EQ(overrides->at(3).kind, NodeKind::gpu);
  EXPECT_EQ(overrides->at(5).kind, NodeKind::gpu);
  EXPECT_EQ(overrides->at(5).source, "HEADRACE_NODES");
}

TEST(OverridesTest, MemkindsVariable_MeansHbmWithLowerPriority) {
  const auto overrides = parse_overrides("8=cxl", "8-9");
  ASSERT_TRUE(overrides) << overrides.error().message;
  EXPECT_EQ(overrides->at(8).kind, NodeKind::cxl);
  EXPECT_EQ(overrides->at(9).kind, NodeKind::hbm);
  EXPECT_EQ(overrides->at(9).source, "MEMKIND_HBW_NODES");
}

TEST(OverridesTest, EmptySaysNothing) {
  EXPECT_TRUE(parse_overrides("", "")->empty());
  EXPECT_TRUE(parse_overrides(std::nullopt, std::nullopt)->empty());
}

TEST(OverridesTest, MalformedTextsShowTheFormat) {
  for (const char* text : {"8", "=hbm", "8=", "8=fast", "8=hbm,", ",8=hbm", "8-=hbm", "8==hbm",
                           "x=hbm", "8=hbm,9", "8=hbm,8=cxl", "8=storage", "8=HBM", ",", "="}) {
    const auto overrides = parse_overrides(text, std::nullopt);
    ASSERT_FALSE(overrides) << text;
    EXPECT_EQ(overrides.error().code, ErrorCode::invalid);
    EXPECT_NE(overrides.error().message.find("8-15=hbm,2=cxl"), std::string::npos)
        << overrides.error().message;
  }
  for (const char* text : {"x", "8-", "8=hbm", ","}) {
    const auto overrides = parse_overrides(std::nullopt, text);
    ASSERT_FALSE(overrides) << text;
    EXPECT_NE(overrides.error().message.find("MEMKIND_HBW_NODES"), std::string::npos);
  }
}

TEST(OverridesTest, AnyTextIsOverridesOrInvalid) {
  EXPECT_TRUE(rc::check([](const std::vector<std::uint8_t>& picks) {
    constexpr std::string_view kAlphabet = "0123456789,-=hbmcxldra ";
    std::string text;
    for (const auto pick : picks) text += kAlphabet[pick % kAlphabet.size()];
    const auto overrides = parse_overrides(text, text);
    if (!overrides) RC_ASSERT(overrides.error().code == ErrorCode::invalid);
  }));
}

}  // namespace
}  // namespace headrace
