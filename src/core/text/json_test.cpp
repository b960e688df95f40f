// SPDX-License-Identifier: Apache-2.0
#include "core/text/json.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

TEST(JsonTest, Mistakes_HaveLineAndColumn) {
  const auto document = parse_document("{\n  \"a\": ,\n}");
  ASSERT_FALSE(document.has_value());
  EXPECT_NE(document.error().message.find("line 2, column 8"), std::string::npos)
      << document.error().message;
}

TEST(JsonTest, DepthIsBoundedOutsideStrings) {
  EXPECT_FALSE(parse_document(std::string(65, '[') + std::string(65, ']')).has_value());
  EXPECT_TRUE(parse_document(std::string(64, '[') + std::string(64, ']')).has_value());
  EXPECT_TRUE(parse_document('"' + std::string(1000, '[') + '"').has_value());
}

TEST(JsonTest, BytesThatAreNoTextDoNotBreakIt) {
  const std::string text = print_document({{"name", "a\xff"}});
  EXPECT_EQ(text, "{\n  \"name\": \"a\xef\xbf\xbd\"\n}\n");
}

}  // namespace
}  // namespace headrace
