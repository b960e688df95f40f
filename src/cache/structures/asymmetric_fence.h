// SPDX-License-Identifier: Apache-2.0
// A fence in two halves. The light one costs nothing and is used often. The heavy one executes a
// fence on every CPU that runs a thread of this process (membarrier(2)). Like
// asymmetric_thread_fence_light and _heavy of P1202 (C++ committee).
//
// Thread A stores x, passes the light fence and loads y. Thread B stores y, passes the heavy fence
// and loads x. Then at least one of them sees the other's store. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

namespace headrace {

// Registers with the kernel, once in each process. False: there is no such fence (a kernel before
// 4.14, a container that forbids the call, ThreadSanitizer, which knows no fences). Then both
// threads must use sequentially consistent exchanges.
bool prepare_asymmetric_fence();

inline void light_fence() { std::atomic_signal_fence(std::memory_order_seq_cst); }

// Takes about a microsecond, and longer with many CPUs. Requires: prepare_asymmetric_fence()
// returned true, and the call was not forbidden since (a sandbox that a process enters late must
// allow membarrier). Otherwise the process ends, since no block could be dropped any more.
void heavy_fence();

// The heavy fences of this process so far.
std::uint64_t heavy_fences_passed();

}  // namespace headrace
