// SPDX-License-Identifier: Apache-2.0
// A benchmark with separately placed arrays: the histogram of IT4I's guide to the memory of Xeon
// Max ("Heterogeneous Memory Management on Intel Platforms", docs.it4i.cz), with many bins and far
// more data.
//
// The kernel and its sizes are the guide's. Unlike the guide's program, memory comes from the
// caller, and threads are pinned. Medians, rounds and checks are in `headrace bench histogram`.
//
// Thread-compatible; run one at a time, since two would disturb each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "headrace/machine.h"
#include "headrace/result.h"
#include "headrace/units.h"

namespace headrace {

// 8 MiB of counters per thread. A compile-time constant, as in the guide: finding a bin is then a
// division of doubles and a mask.
inline constexpr std::size_t kHistogramBins = std::size_t{1} << 20;

// Fills `data` like the guide's program with one thread per CPU: thread i, on cpus[i], fills its
// part by drand48_r, seeded with i. Untouched pages are placed near the thread that will count
// them.
// Errors: invalid: no CPU; exhausted: a thread could not be started.
Status histogram_fill(std::span<double> data, const CpuSet& cpus);

// Runs one iteration: each thread clears its kHistogramBins of `bins` and counts its part of
// `data`. Returns the time from the first thread's start to the last thread's end. The final
// histogram is the sum over threads; the guide does not time this sum either.
// Errors: invalid: no CPU, or `bins` of another size.
Result<Nanoseconds> histogram_count(std::span<const double> data, std::span<std::uint64_t> bins,
                                    const CpuSet& cpus);

}  // namespace headrace
