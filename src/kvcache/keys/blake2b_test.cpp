// SPDX-License-Identifier: Apache-2.0
#include "kvcache/keys/blake2b.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace headrace::kvcache {
namespace {

std::string hex(unsigned bytes, std::span<const std::byte> text, std::size_t cut = SIZE_MAX) {
  Blake2b hash(bytes);
  while (!text.empty()) {
    const auto part = text.first(std::min(cut, text.size()));
    hash.add(part);
    text = text.subspan(part.size());
  }
  std::string result;
  const auto digest = hash.digest();
  for (const std::byte byte : std::span(digest).first(bytes)) {
    result += fmt::format("{:02x}", static_cast<unsigned>(byte));
  }
  return result;
}

TEST(Blake2b, IsThatOfTheRfc) {
  const std::string abc = "abc";  // RFC 7693, appendix A
  EXPECT_EQ(hex(64, std::as_bytes(std::span(abc))),
            "ba80a53f981c4d0d6a2797b69f12f6e94c212f14685ac4b74b12bb6fdbffa2d1"
            "7d87c5392aab792dc252d5de4533cc9518d38aa8dbf1925ab92386edd4009923");
}

// hashlib.blake2b(bytes(i % 251 for i in range(n)), digest_size=16).hexdigest()
TEST(Blake2b, IsThatOfPythonAtAllLengthsAroundAChunk) {
  const std::pair<std::size_t, const char*> kDigests[] = {
      {0, "cae66941d9efbd404e4d88758ea67670"},    {1, "7025e075d5e2f6cde3cc051a31f07660"},
      {127, "28b1296c7d4807883de6ee4ec04dcc0a"},  {128, "a74787004ef589e31149183900d0294a"},
      {129, "aaf1b0371f6d4ee49ee4fb5ddd9c49ef"},  {255, "e2f3b2a57bcf64d626b37fc9c12674a1"},
      {256, "1142c504dcd26338b7cbcf41424540d0"},  {257, "b77b55d3dddcc45c6a52774565cd0dd6"},
      {1000, "bca120dfd89cd95d82898473a5b01c90"},
  };
  for (const auto& [length, digest] : kDigests) {
    std::vector<std::byte> bytes(length);
    for (std::size_t i = 0; i < length; ++i) bytes[i] = static_cast<std::byte>(i % 251);
    EXPECT_EQ(hex(16, bytes), digest) << length;
    EXPECT_EQ(hex(16, bytes, 7), digest) << length;
  }
}

}  // namespace
}  // namespace headrace::kvcache
