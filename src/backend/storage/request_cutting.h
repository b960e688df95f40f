// SPDX-License-Identifier: Apache-2.0
// Cuts a piece into requests that the file's device accepts. The pieces of a move are cut before,
// by src/move/scheduler.cpp. Pure arithmetic, no I/O.
//
// Past the page cache, offsets, lengths and addresses must be aligned (docs/design/storage.md):
// - the part of a read that consists of whole blocks of the device (on old kernels, whole pages of
//   memory) goes straight into memory,
// - the rest of a read goes through bounce buffers, in whole blocks,
// - the odd edges of a write go through the page cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "headrace/file.h"

namespace headrace::storage {

// Size of a bounce buffer, and the largest request through it.
inline constexpr std::uint64_t kBounceBytes = 256 << 10;

// A piece, seen as a span of the file and the address of its memory.
struct FileSpan {
  bool write = false;
  std::uint64_t begin = 0;  // in the file
  std::uint64_t end = 0;
  std::uintptr_t address = 0;             // of the byte at `begin`
  std::optional<DirectAlignment> direct;  // empty: only through the page cache
  std::uint64_t page = 4096;              // of the page cache
  // Bytes, a power of two. A read goes straight only into whole pages of this size. 1: the kernel
  // allows a core to write to a page while a device writes to it.
  std::uint64_t memory_page = 4096;
  std::uint64_t request_bytes = 512 << 10;  // largest straight request, at least a page and a block

  std::uintptr_t address_of(std::uint64_t offset) const { return address + (offset - begin); }
};

// One request: the part of the file that the kernel is asked for, and the wanted part of it.
struct Step {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint64_t from = 0;  // [from, to) is wanted; the whole request unless bounced
  std::uint64_t to = 0;
  bool direct = false;
  bool bounce = false;

  friend bool operator==(const Step&, const Step&) = default;
};

// Returns the request that begins with the byte at `next`. Requires: begin <= next < end.
Step next_step(const FileSpan& span, std::uint64_t next);

}  // namespace headrace::storage
