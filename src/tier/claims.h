// SPDX-License-Identifier: Apache-2.0
// Which memory of this process is tracked, so that no two sources spoil one another's: a child made
// by fork() begins with none. And which is SharedMemory. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "headrace/result.h"
#include "headrace/tier/hotness.h"
#include "tier/kernel.h"
#include "tier/vmas.h"

namespace headrace {

// The range is tracked by `kind` from now on; invalid: a part of it is tracked already, by whom.
Status claim(std::uintptr_t begin, std::uintptr_t end, HotnessKind kind);
// Requires: claimed in this process.
void release_claim(std::uintptr_t begin);

// The range is SharedMemory from now on, until unmap_shared() has unmapped it.
void add_shared(std::span<std::byte> memory, FileId file);
void unmap_shared(std::span<std::byte> memory);
// The file of the SharedMemory that the range lies in; nothing where there is none.
std::optional<FileId> shared_file(std::uintptr_t begin, std::uintptr_t end);
// Drops the page table entries of a range, if it lies in one SharedMemory, which is not unmapped
// meanwhile: in its place there could be memory of somebody else, whose bytes would be gone. What
// the kernel says, or nothing where there is no such memory.
std::optional<int> drop_entries(Kernel& kernel, std::uintptr_t begin, std::uintptr_t end);

// The accessed bits of the process, which one source may clear; false: another does.
bool claim_accessed_bits();
void release_accessed_bits();

}  // namespace headrace
