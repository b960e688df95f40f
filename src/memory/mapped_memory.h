// SPDX-License-Identifier: Apache-2.0
// A mapping of this process, unmapped when its owner ends. Thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <utility>

#include "headrace/units.h"

namespace headrace {

// Unmaps. Near the limit on mappings (vm.max_map_count) the kernel cannot cut a piece out of a
// merged mapping; then the pages are freed and only the addresses stay reserved.
void unmap(std::byte* memory, std::uint64_t length);

// Owns a mapping; release() gives it up.
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

  // Maps anonymous memory aligned to `align`, a power of two. `unit` is the alignment that mmap
  // gives by itself; above it, more is mapped and the ends are unmapped. Returns errno when the
  // kernel refuses.
  static std::expected<MappedMemory, int> make(Bytes length, Bytes align, Bytes unit,
                                               int protection, int flags = 0);

  // Maps in place of `before`. Returns errno when the kernel refuses; the addresses are then
  // abandoned, because it is unknown whether they are still mapped.
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
