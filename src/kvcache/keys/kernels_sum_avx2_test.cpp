// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <vector>

#include "kvcache/keys/sum.h"

namespace headrace::kvcache {
namespace {

// Lengths around those at which XXH3 changes its method, at unaligned addresses.
TEST(KvSumAvx2, IsAlikeForAllLengths) {
#ifdef __x86_64__
  if (!__builtin_cpu_supports("avx2")) GTEST_SKIP() << "needs a CPU with AVX2";
  std::vector<std::byte> bytes(4200);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * i);
  for (std::size_t length = 0; length < 1100; ++length) {
    EXPECT_EQ(plain_sum_avx2(bytes.data() + 1, length, length),
              plain_sum(std::span(bytes).subspan(1, length), length));
  }
#endif
}

}  // namespace
}  // namespace headrace::kvcache
