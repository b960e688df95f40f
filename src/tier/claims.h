// Which memory of this process is tracked, so that no two sources spoil one another's. A child made
// by fork() begins with none. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>

#include "headrace/result.h"
#include "headrace/tier/hotness.h"

namespace headrace {

// The range is tracked by `kind` from now on; invalid: a part of it is tracked already, by whom.
Status claim(std::uintptr_t begin, std::uintptr_t end, HotnessKind kind);
// Requires: claimed in this process.
void release_claim(std::uintptr_t begin);

// The accessed bits of the process, which one source may clear; false: another does.
bool claim_accessed_bits();
void release_accessed_bits();

}  // namespace headrace
