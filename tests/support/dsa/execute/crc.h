// SPDX-License-Identifier: Apache-2.0
// The checksums of the CRC operations (SPEC 8.3, "CRC Generation").
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace headrace::emulator {

struct CrcOptions {
  bool wide = false;                // 64 bits
  bool no_reflection = false;       // seed and result are neither inverted nor reflected
  bool no_data_reflection = false;  // bits of each byte from the highest, not from the lowest
};

// With no options and seed 0 the usual CRC-32C (polynomial 0x1edc6f41). The 64-bit one is that of
// NVMe (0xad93d23594c93659); which polynomial the device has is not in our sources. Continuing: the
// value so far is the seed of the rest. Single-thread.
class Crc {
 public:
  explicit Crc(std::uint64_t seed, CrcOptions options = {});
  void add(std::span<const std::byte> bytes);
  std::uint64_t value() const;

 private:
  CrcOptions options_;
  std::uint64_t state_;  // the highest bit is the highest power, also of 32
};

}  // namespace headrace::emulator
