// SPDX-License-Identifier: Apache-2.0
// Memory in files: on a storage node, or in memory that other processes can map. Thread-safe.
#pragma once

#include <optional>

#include "core/own_files.h"
#include "headrace/machine.h"
#include "headrace/result.h"
#include "memory/mapped_memory.h"

namespace headrace {

// Maps at least `bytes`, in whole pages, aligned to `align`, in a nameless file beneath the path of
// the storage node. Loads and stores reach it through the page cache; the kernel writes pages back
// when memory is short. Device space is reserved at once, so that no store fails for lack of space
// on file systems that keep such reservations. Errors: absent: the node has no path; exhausted: the
// device, a quota or ulimit -f leaves too little.
Result<MappedMemory> map_file(const Node& storage, Bytes bytes, Bytes align);

// A file in memory (memfd), mapped here to be read and written. Other processes can map it only to
// be read, and nobody can cut it. A child of fork() has neither the mapping nor the descriptor.
struct SealedMemory {
  // `pool`: from a hugetlb pool of pages of this size. Errors: exhausted: too few descriptors or
  // pages. unsupported: a kernel before 5.1, which cannot forbid writable mappings.
  static Result<SealedMemory> make(Bytes bytes, Bytes align, std::optional<Bytes> pool = {});

  MappedMemory mapping;
  OwnDescriptor file;
};

// Maps such a file of another process. Borrows the descriptor for the call. A child of fork() does
// not have the mapping. Errors: invalid: another process may write to the file, or cut it.
Result<MappedMemory> map_shared(int descriptor);

}  // namespace headrace
