// SPDX-License-Identifier: Apache-2.0
// Addresses of this process with something behind them. Thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <utility>

#include "headrace/units.h"

namespace headrace {

// Near the limit on mappings (vm.max_map_count) a piece of a merged mapping cannot be cut out: then
// its pages go back and only its addresses stay taken.
void unmap(std::byte* memory, std::uint64_t length);

// Unmapped when it goes, unless it is given away.
class MappedMemory {
 public:
  MappedMemory() = default;
  MappedMemory(std::byte* memory, Bytes length) : memory_(memory), length_(length) {}
  MappedMemory(MappedMemory&& other) noexcept { *this = std::move(other); }
  MappedMemory& operator=(MappedMemory&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(length_, other.length_);
    return *this;
  }
  ~MappedMemory() {
    if (memory_ != nullptr) unmap(memory_, length_.value);
  }

  // Anonymous memory as of mmap, at a multiple of `align`, a power of two, where that is more than
  // `unit`, to which mmap aligns by itself: then more is mapped and the ends are given back. An
  // errno value where the kernel refuses.
  static std::expected<MappedMemory, int> make(Bytes length, Bytes align, Bytes unit,
                                               int protection, int flags = 0);

  // As mmap, in the place of memory that was mapped before. An errno value where the kernel
  // refuses; then nobody has the addresses any more, since whether they are still mapped is not
  // known.
  static std::expected<MappedMemory, int> over(MappedMemory before, int protection, int flags,
                                               int descriptor = -1);

  std::byte* memory() const { return memory_; }
  Bytes length() const { return length_; }
  std::byte* release() { return std::exchange(memory_, nullptr); }

 private:
  std::byte* memory_ = nullptr;
  Bytes length_;
};

}  // namespace headrace
