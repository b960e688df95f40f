// SPDX-License-Identifier: Apache-2.0
#include "memory/mapped_memory.h"

#include <sys/mman.h>

#include <cerrno>

#include "core/check.h"

namespace headrace {

void unmap(std::byte* memory, std::uint64_t length) {
  if (::munmap(memory, length) == 0) return;
  CHECK(errno == ENOMEM && ::madvise(memory, length, MADV_DONTNEED) == 0);
}

std::expected<MappedMemory, int> MappedMemory::make(Bytes length, Bytes align, Bytes unit,
                                                    int protection, int flags) {
  const std::uint64_t slack = align > unit ? align.value : 0;
  void* const mapped =
      ::mmap(nullptr, length.value + slack, protection, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  if (mapped == MAP_FAILED) return std::unexpected(errno);
  auto* const begin = static_cast<std::byte*>(mapped);
  if (slack == 0) return MappedMemory{begin, length};
  const std::uint64_t head = (slack - reinterpret_cast<std::uintptr_t>(begin) % slack) % slack;
  if (head > 0) unmap(begin, head);
  if (slack > head) unmap(begin + head + length.value, slack - head);
  return MappedMemory{begin + head, length};
}

std::expected<MappedMemory, int> MappedMemory::over(MappedMemory before, int protection, int flags,
                                                    int descriptor) {
  const Bytes length = before.length();
  std::byte* const begin = before.release();
  if (::mmap(begin, length.value, protection, flags | MAP_FIXED, descriptor, 0) == MAP_FAILED) {
    return std::unexpected(errno);
  }
  return MappedMemory{begin, length};
}

}  // namespace headrace
