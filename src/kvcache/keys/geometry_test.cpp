// SPDX-License-Identifier: Apache-2.0
#include "kvcache/keys/geometry.h"

#include <gtest/gtest.h>

#include <set>

namespace headrace::kvcache {
namespace {

Geometry llama_8b() {
  return {.model = "llama-3.1-8b", .layers = 32, .kv_heads = 8, .head_dim = 128};
}

TEST(KvGeometry, HasThePublishedSizes) {
  EXPECT_EQ(llama_8b().fragment(), 64_KiB);
  EXPECT_EQ(llama_8b().block(), 2_MiB);
  const Geometry latent{
      .model = "deepseek-v3", .layers = 61, .kv_heads = 1, .head_dim = 576, .tensors = 1};
  EXPECT_EQ(latent.fragment(), 18_KiB);
}

TEST(KvGeometry, RefusesWhatHasNoSize) {
  EXPECT_TRUE(check(llama_8b()).has_value());
  Geometry none = llama_8b();
  none.head_dim = 0;
  EXPECT_EQ(check(none).error().code, ErrorCode::invalid);
  Geometry large = llama_8b();
  large.block_tokens = UINT32_MAX;
  large.kv_heads = UINT32_MAX;
  EXPECT_EQ(check(large).error().code, ErrorCode::invalid);
}

TEST(KvKeys, SayAllTokensBeforeAndAllOfTheGeometry) {
  std::vector<std::uint32_t> tokens(70);
  const auto a = keys(llama_8b(), tokens);
  ASSERT_EQ(a.size(), 4u);  // the last 6 tokens are not a block
  std::set<Key> different(a.begin(), a.end());
  EXPECT_EQ(different.size(), 4u);
  tokens[17] = 1;
  const auto b = keys(llama_8b(), tokens);
  EXPECT_EQ(b[0], a[0]);
  for (std::size_t i = 1; i < 4; ++i) EXPECT_NE(b[i], a[i]);
  tokens[17] = 0;
  for (const auto change :
       {+[](Geometry& g) { g.model = "other"; }, +[](Geometry& g) { g.revision = "other"; },
        +[](Geometry& g) { g.element_bytes = 1; }, +[](Geometry& g) { g.model += "x"; }}) {
    Geometry other = llama_8b();
    change(other);
    EXPECT_NE(keys(other, tokens)[0], a[0]);
  }
  // Moving a letter from one name to the other is a change.
  Geometry left = llama_8b();
  Geometry right = llama_8b();
  left.model = "ab";
  left.revision = "c";
  right.model = "a";
  right.revision = "bc";
  EXPECT_NE(root_key(left), root_key(right));
}

TEST(KvKeys, OfAnotherSaltAreOthers) {
  const std::vector<std::uint32_t> tokens(40, 7);
  const auto plain = keys(llama_8b(), tokens);
  EXPECT_EQ(keys(llama_8b(), tokens, ""), plain);
  const auto one = keys(llama_8b(), tokens, "tenant 1");
  ASSERT_EQ(one.size(), 2u);
  EXPECT_EQ(keys(llama_8b(), tokens, "tenant 1"), one);
  const auto other = keys(llama_8b(), tokens, "tenant 2");
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_NE(one[i], plain[i]);
    EXPECT_NE(one[i], other[i]);
  }
  Geometry geometry = llama_8b();
  geometry.revision = "1";
  EXPECT_NE(keys(geometry, tokens, "tenant 1")[0], one[0]);
  // The bytes of a block of tokens, used as a salt, do not give the keys after that block.
  const std::string_view first(reinterpret_cast<const char*>(tokens.data()), 16 * 4);
  EXPECT_NE(keys(llama_8b(), tokens, first)[0], plain[1]);
}

TEST(KvChecksums, TellBytesAtAWrongPlace) {
  const std::vector<std::byte> bytes(100);
  const Key key{1, 2};
  EXPECT_EQ(fragment_sum(key, 0, bytes), fragment_sum(key, 0, bytes));
  EXPECT_NE(fragment_sum(key, 0, bytes), fragment_sum(key, 1, bytes));
  EXPECT_NE(fragment_sum(key, 0, bytes), fragment_sum({1, 3}, 0, bytes));
}

}  // namespace
}  // namespace headrace::kvcache
