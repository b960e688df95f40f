// SPDX-License-Identifier: Apache-2.0
#include "dsa_emulator/execute/crc.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

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

#if defined(__x86_64__)
// The instruction has the polynomial of 32 bits, and bytes from their lowest bit; its state is
// reflected.
[[gnu::target("sse4.2")]] std::uint64_t add_by_instruction(std::uint64_t state,
                                                           std::span<const std::byte> bytes) {
  std::uint64_t reflected = reversed(state >> 32, 32);
  for (; bytes.size() >= sizeof(std::uint64_t); bytes = bytes.subspan(sizeof(std::uint64_t))) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof word);
    reflected = _mm_crc32_u64(reflected, word);
  }
  auto last = static_cast<std::uint32_t>(reflected);
  for (const std::byte byte : bytes) last = _mm_crc32_u8(last, std::to_integer<std::uint8_t>(byte));
  return reversed(last, 32) << 32;
}

bool has_instruction() { return __builtin_cpu_supports("sse4.2") != 0; }
#else
std::uint64_t add_by_instruction(std::uint64_t state, std::span<const std::byte>) { return state; }
bool has_instruction() { return false; }
#endif

}  // namespace

Crc::Crc(std::uint64_t seed, CrcOptions options)
    : options_(options), state_(converted(seed, options) << (options.wide ? 0 : 32)) {}

void Crc::add(std::span<const std::byte> bytes) {
  if (!options_.wide && !options_.no_data_reflection && has_instruction()) {
    state_ = add_by_instruction(state_, bytes);
    return;
  }
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
