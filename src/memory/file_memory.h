// SPDX-License-Identifier: Apache-2.0
// Memory in a file on a storage node. Loads and stores reach it through the page cache; the kernel
// writes pages back when memory is short. Thread-safe.
#pragma once

#include "headrace/machine.h"
#include "headrace/result.h"
#include "memory/mapped_memory.h"

namespace headrace {

// Maps at least `bytes`, in whole pages, aligned to `align`, in a nameless file beneath the path of
// the storage node. Device space is reserved at once, so that no store fails for lack of space on
// file systems that keep such reservations. Errors: absent: the node has no path; exhausted: the
// device, a quota or ulimit -f leaves too little.
Result<MappedMemory> map_file(const Node& storage, Bytes bytes, Bytes align);

}  // namespace headrace
