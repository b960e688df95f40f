// SPDX-License-Identifier: Apache-2.0
// A fence in two halves: the light one costs nothing and stands where it is passed often, the heavy
// one makes up for it by a fence on every CPU that runs a thread of this process (membarrier(2)).
// As asymmetric_thread_fence_light and _heavy of P1202 (C++ committee).
//
// When thread A stores x, passes the light fence and loads y, while B stores y, passes the heavy
// one and loads x, at least one of them sees what the other stored. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

namespace headrace {

// Asks the kernel for it, once in each process. False: there is none (a kernel before 4.14, a
// container that forbids the call, ThreadSanitizer, which knows no fences): both threads have to
// use sequentially consistent exchanges then.
bool prepare_asymmetric_fence();

inline void light_fence() { std::atomic_signal_fence(std::memory_order_seq_cst); }

// Takes about a microsecond, and longer with many CPUs. Requires: prepare_asymmetric_fence() said
// true, and nobody has forbidden the call since (a sandbox that a process enters late must let
// membarrier through): without it nothing could be dropped any more, so the process ends.
void heavy_fence();

// How many of them this process has passed.
std::uint64_t heavy_fences_passed();

}  // namespace headrace
