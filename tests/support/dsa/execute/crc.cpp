// SPDX-License-Identifier: Apache-2.0
#include "tests/support/dsa/execute/crc.h"

#include <array>

namespace headrace::emulator {
namespace {

constexpr std::uint64_t kCrc32c = std::uint64_t{0x1edc6f41} << 32;
constexpr std::uint64_t kNvme = 0xad93d23594c93659;

using CrcTable = std::array<std::uint64_t, 256>;

constexpr CrcTable make_crc_table(std::uint64_t polynomial) {
  CrcTable table{};
  for (std::uint64_t i = 0; i < 256; ++i) {
    std::uint64_t state = i << 56;
    for (int bit = 0; bit < 8; ++bit) {
      state = state >> 63 != 0 ? state << 1 ^ polynomial : state << 1;
    }
    table[i] = state;
  }
  return table;
}

constexpr CrcTable kTable32 = make_crc_table(kCrc32c);
constexpr CrcTable kTable64 = make_crc_table(kNvme);

constexpr std::uint64_t reversed(std::uint64_t value, int bits) {
  std::uint64_t result = 0;
  for (int i = 0; i < bits; ++i) result |= (value >> i & 1) << (bits - 1 - i);
  return result;
}

constexpr std::array<std::uint8_t, 256> kReversed = [] {
  std::array<std::uint8_t, 256> table{};
  for (std::uint64_t i = 0; i < 256; ++i) table[i] = static_cast<std::uint8_t>(reversed(i, 8));
  return table;
}();

// Inversion and reflection undo themselves: the same on the way in and out.
std::uint64_t converted(std::uint64_t value, CrcOptions options) {
  const int bits = options.wide ? 64 : 32;
  const std::uint64_t mask = options.wide ? ~std::uint64_t{0} : 0xffffffff;
  return options.no_reflection ? value & mask : reversed(~value & mask, bits);
}

}  // namespace

Crc::Crc(std::uint64_t seed, CrcOptions options)
    : options_(options), state_(converted(seed, options) << (options.wide ? 0 : 32)) {}

void Crc::add(std::span<const std::byte> bytes) {
  const CrcTable& table = options_.wide ? kTable64 : kTable32;
  for (const std::byte byte : bytes) {
    const auto value = std::to_integer<std::uint8_t>(byte);
    const std::uint8_t in = options_.no_data_reflection ? value : kReversed[value];
    state_ = state_ << 8 ^ table[(state_ >> 56) ^ in];
  }
}

std::uint64_t Crc::value() const {
  return converted(options_.wide ? state_ : state_ >> 32, options_);
}

}  // namespace headrace::emulator
