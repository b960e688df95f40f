// SPDX-License-Identifier: Apache-2.0
#include "kvcache/keys/sum.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace headrace::kvcache {
namespace {

// Another machine may open the folder. The values are those of xxhash 0.8.1 for a CPU without AVX2.
TEST(KvSum, IsTheSameOnAllMachines) {
  std::vector<std::byte> bytes(5000);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7);
  const std::pair<std::size_t, std::uint64_t> sums[] = {
      {0, 0x8e1aeea8bc928d25U},   {16, 0xd16b9e702d57992aU},   {200, 0x6fd6af7f0349459cU},
      {241, 0x340bafa22b9b0c98U}, {1024, 0xae8d1026fdc29354U}, {5000, 0x27a4c4c392ce0d85U},
  };
  for (const auto& [length, sum] : sums) {
    EXPECT_EQ(plain_sum(std::span(bytes).first(length), 9), sum) << length;
  }
}

}  // namespace
}  // namespace headrace::kvcache
