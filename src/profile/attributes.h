// SPDX-License-Identifier: Apache-2.0
// Enters measured values into a machine. Pure.
#pragma once

#include "headrace/profile.h"

namespace headrace {

// Enters the values that policies need into the profile's machine:
// - latency of the whole buffer with huge pages
// - read and write bandwidth of the best number of threads, up to all CPUs of a node
// - copy rates of CPU engines (findings.h), of a disk's queue, and of a GPU's copy engines with
//   pinned memory
// - the small copies for which a GPU's kernel takes at most half the time
//
// Quiet rows have priority over noisy ones. If there is any new value, older measured attributes
// are removed.
void put_into_machine(Profile& profile);

}  // namespace headrace
