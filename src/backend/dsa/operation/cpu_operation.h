// SPDX-License-Identifier: Apache-2.0
// The same operations by the calling core, for what devices leave undone.
#pragma once

#include "backend/dsa/operation/operation.h"
#include "headrace/result.h"

namespace headrace::dsa {

// Does it, with the results a device would give. invalid: one that no core can do (an opcode not
// known here, a delta record that leaves its destination). Requires: the addresses are the
// process's, as for memcpy. Thread-safe.
Result<Outcome> run_on_cpu(const Operation& operation);

}  // namespace headrace::dsa
