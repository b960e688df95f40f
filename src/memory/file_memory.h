// SPDX-License-Identifier: Apache-2.0
// Memory in a file of a storage device: loads and stores reach it through the page cache, and the
// kernel writes it back when memory is short. Thread-safe.
#pragma once

#include "headrace/machine.h"
#include "headrace/result.h"
#include "memory/mapped_memory.h"

namespace headrace {

// At least `bytes`, in whole pages, at a multiple of `align`, in a file without a name beneath the
// path of the storage node. Its room is taken on the device at once, so that no store fails for
// want of it where the file system keeps that promise. absent: the node has no path; exhausted: the
// device, a quota or ulimit -f has no room.
Result<MappedMemory> map_file(const Node& storage, Bytes bytes, Bytes align);

}  // namespace headrace
