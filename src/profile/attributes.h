// SPDX-License-Identifier: Apache-2.0
// What measuring teaches a machine. Pure.
#pragma once

#include "headrace/profile.h"

namespace headrace {

// Puts what policies ask a machine into the profile's: the latency of the whole buffer with huge
// pages, the read and write bandwidth of the best number of threads up to all CPUs of a node, how
// the CPU engines copy (findings.h), what a disk's queue reads and writes, what a GPU's copy
// engines do with pinned memory, and which small copies its kernel makes in half their time. A
// quiet row counts more than a noisy one. Attributes measured before are forgotten as soon as there
// is one new.
void put_into_machine(Profile& profile);

}  // namespace headrace
