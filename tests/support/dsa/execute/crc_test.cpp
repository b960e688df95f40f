// SPDX-License-Identifier: Apache-2.0
#include "tests/support/dsa/execute/crc.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string_view>
#include <vector>

namespace headrace::emulator {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::uint64_t crc_of(std::span<const std::byte> bytes, CrcOptions options, std::uint64_t seed = 0) {
  Crc crc(seed, options);
  crc.add(bytes);
  return crc.value();
}

// Check values of the catalogue of parametrised CRC algorithms (reveng.sourceforge.io).
TEST(Crc, KnownValues) {
  const auto text = bytes_of("123456789");
  EXPECT_EQ(crc_of(text, {}), 0xe3069283U) << "CRC-32/ISCSI";
  EXPECT_EQ(crc_of(text, {.wide = true}), 0xae8b14860a799888U) << "CRC-64/NVME";
}

// Bit by bit, from the definition: a register, a polynomial, the bits of each byte in order.
std::uint64_t slow_crc(std::span<const std::byte> bytes, CrcOptions options, std::uint64_t seed) {
  const int width = options.wide ? 64 : 32;
  const std::uint64_t polynomial = options.wide ? 0xad93d23594c93659 : 0x1edc6f41;
  const std::uint64_t mask = options.wide ? ~std::uint64_t{0} : 0xffffffff;
  const auto reflect = [&](std::uint64_t value) {
    std::uint64_t result = 0;
    for (int i = 0; i < width; ++i) result |= (value >> i & 1) << (width - 1 - i);
    return result;
  };
  std::uint64_t state = seed & mask;
  if (!options.no_reflection) state = reflect(~state & mask);
  for (const std::byte byte : bytes) {
    for (int i = 0; i < 8; ++i) {
      const int bit = options.no_data_reflection ? 7 - i : i;
      const std::uint64_t in = std::to_integer<std::uint64_t>(byte) >> bit & 1;
      const std::uint64_t out = (state >> (width - 1) & 1) ^ in;
      state = (state << 1 ^ (out != 0 ? polynomial : 0)) & mask;
    }
  }
  return options.no_reflection ? state : ~reflect(state) & mask;
}

RC_GTEST_PROP(Crc, IsThatOfTheDefinition,
              (const std::vector<std::uint8_t>& data, std::uint64_t seed, bool wide, bool plain,
               bool plain_data)) {
  const CrcOptions options{wide, plain, plain_data};
  const auto bytes = std::as_bytes(std::span(data));
  RC_ASSERT(crc_of(bytes, options, seed) == slow_crc(bytes, options, seed));
}

// Resuming after a fault (SPEC 3.6): the value so far is the seed of the rest.
RC_GTEST_PROP(Crc, TheValueSoFarIsTheSeedOfTheRest,
              (const std::vector<std::uint8_t>& data, std::uint64_t seed, bool wide, bool plain,
               bool plain_data)) {
  const CrcOptions options{wide, plain, plain_data};
  const auto bytes = std::as_bytes(std::span(data));
  const auto cut = *rc::gen::inRange<std::size_t>(0, bytes.size() + 1);
  const std::uint64_t first = crc_of(bytes.first(cut), options, seed);
  RC_ASSERT(crc_of(bytes.subspan(cut), options, first) == crc_of(bytes, options, seed));
}

}  // namespace
}  // namespace headrace::emulator
