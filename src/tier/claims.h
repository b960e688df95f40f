// SPDX-License-Identifier: Apache-2.0
// The memory of this process that is tracked, so that no two sources disturb each other, and its
// SharedMemory. A child made by fork() begins with no claims. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "headrace/result.h"
#include "headrace/tier/hotness.h"
#include "host/kernel.h"
#include "tier/vmas.h"

namespace headrace {

// Marks the range as tracked by `kind`. Errors: invalid: a part is tracked already; the message
// says by which source.
Status claim(std::uintptr_t begin, std::uintptr_t end, HotnessKind kind);
// Requires: claimed in this process.
void release_claim(std::uintptr_t begin);

// Marks the range as SharedMemory, until unmap_shared() has unmapped it.
void add_shared(std::span<std::byte> memory, FileId file);
void unmap_shared(std::span<std::byte> memory);
// The file of the SharedMemory that contains the range; nullopt: none does.
std::optional<FileId> shared_file(std::uintptr_t begin, std::uintptr_t end);
// Drops the page table entries of a range that lies in one SharedMemory. The memory cannot be
// unmapped meanwhile: otherwise other memory might take its place and lose its bytes. Returns the
// result of the kernel's call; nullopt: no such SharedMemory.
std::optional<int> drop_entries(Kernel& kernel, std::uintptr_t begin, std::uintptr_t end);

// Claims the accessed bits of the process, which only one source may clear; false: another source
// has them.
bool claim_accessed_bits();
void release_accessed_bits();

}  // namespace headrace
