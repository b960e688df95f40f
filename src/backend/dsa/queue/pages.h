// SPDX-License-Identifier: Apache-2.0
// Brings pages in before a device needs them. Thread-safe.
#pragma once

#include "backend/dsa/queue/partial_copy.h"
#include "headrace/result.h"

namespace headrace::dsa {

// Makes the first `most` bytes of the source present and those of the destination writable, like a
// touch by the CPU, but without crashing on missing memory. The device's own way (block on fault)
// would hold up all descriptors queued behind (SPEC 3.13). Errors: invalid: some of the memory is
// not this process's, or may not be written.
Status bring_in(const Copy& copy, std::uint64_t most = 32 << 20);

}  // namespace headrace::dsa
