// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "headrace/kvcache/store.h"

namespace headrace::kvcache {
namespace {

// Four at a time, short ones, keys and names longer than a chunk beside each other.
TEST(KvKeysAvx2, OfManyNamesAreThoseOfEach) {
  std::vector<std::string> texts;
  for (std::size_t length = 0; length < 300; ++length) {
    for (std::size_t i = 0; i < 1 + length % 5; ++i) {
      std::string& text = texts.emplace_back(length, '\0');
      for (std::size_t at = 0; at < length; ++at) text[at] = static_cast<char>(at * 7 + i * 31);
    }
  }
  const std::vector<std::string_view> names(texts.begin(), texts.end());
  const std::vector<Key> many = keys_of(names);
  ASSERT_EQ(many.size(), names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(many[i], key_of(std::as_bytes(std::span(names[i])))) << names[i].size();
  }
}

}  // namespace
}  // namespace headrace::kvcache
