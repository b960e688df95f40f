// SPDX-License-Identifier: Apache-2.0
// A program whose arrays one can place apart: the histogram of IT4I's guide to the memory of Xeon
// Max ("Heterogeneous Memory Management on Intel Platforms", docs.it4i.cz), many bins under far
// more data.
//
// The guide's kernel and its numbers, not its program: memory comes from the caller, threads are
// pinned. Medians, rounds and checks are in `headrace bench histogram`; the other workload is
// workload/query.h. In headrace::workload, a library of its own. Thread-compatible; run one at a
// time, they would measure each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "headrace/export.h"
#include "headrace/machine.h"
#include "headrace/result.h"
#include "headrace/units.h"

namespace HEADRACE_API headrace {

// 8 MiB of counters for each thread. Known when compiled, as in the guide: finding a bin is then a
// division of doubles and a mask.
inline constexpr std::size_t kHistogramBins = std::size_t{1} << 20;

// Fills `data` as the guide's program does with as many threads: thread i, on cpus[i], draws its
// part by drand48_r, seeded with i. Pages not touched before come near to the thread that will
// count them. invalid: no CPU. exhausted: a thread could not be started.
Status histogram_fill(std::span<double> data, const CpuSet& cpus);

// One iteration: each thread zeroes its kHistogramBins of `bins` and counts its part of `data`.
// Returns the time from the first one's start to the last one's end. The histogram is the sum over
// threads, which the guide does not time either. invalid: no CPU, or `bins` of another size.
Result<Nanoseconds> histogram_count(std::span<const double> data, std::span<std::uint64_t> bins,
                                    const CpuSet& cpus);

}  // namespace HEADRACE_API headrace
