// SPDX-License-Identifier: Apache-2.0
#include "topology/json_reader.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

class JsonReaderTest : public testing::Test {
 protected:
  JsonReader reader() const { return {document_, "", error_}; }

  nlohmann::ordered_json document_ = {
      {"count", 3u}, {"ratio", 0.5}, {"name", "x"}, {"list", {1u, 2u}}, {"none", nullptr}};
  mutable std::optional<Error> error_;
};

TEST_F(JsonReaderTest, GivesWhatIsThere) {
  EXPECT_EQ(reader().integer("count", 3), 3u);
  EXPECT_EQ(reader().optional_number("ratio"), 0.5);
  EXPECT_EQ(reader().text("name"), "x");
  std::uint64_t sum = 0;
  reader().elements("list", [&](const JsonReader& each) { sum += each.as_integer(9); });
  EXPECT_EQ(sum, 3u);
  EXPECT_FALSE(error_);
}

TEST_F(JsonReaderTest, MissingAndNullAreTheSame) {
  for (const char* name : {"none", "missing"}) {
    EXPECT_EQ(reader().field(name), nullptr);
    EXPECT_EQ(reader().optional_integer(name, 9), std::nullopt);
    EXPECT_EQ(reader().text(name), "");
  }
  EXPECT_FALSE(error_);
}

TEST_F(JsonReaderTest, TheFirstMistakeIsKept) {
  EXPECT_EQ(reader().integer("count", 2), 0u);
  EXPECT_EQ(reader().integer("missing", 2), 0u);
  ASSERT_TRUE(error_);
  EXPECT_EQ(error_->message, "count: must be a whole number from 0 to 2");
}

TEST_F(JsonReaderTest, PlacesAreFitForOneLine) {
  document_["bad\nkey"] = {{"inner", 1}};
  reader().members("bad\nkey", [](const std::string&, const JsonReader& each) { each.as_text(); });
  ASSERT_TRUE(error_);
  EXPECT_EQ(error_->message, "bad?key.inner: must be a string");
}

}  // namespace
}  // namespace headrace
