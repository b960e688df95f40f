// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/histogram/histogram.h"

#include <algorithm>
#include <cstdlib>

#include "core/fail.h"
#include "headrace/clock.h"
#include "measure/measure.h"

namespace headrace {
namespace {

// Cut as by OpenMP's static schedule, so that the data equal those of the guide's program.
template <class T>
std::span<T> histogram_part(std::span<T> all, std::size_t index, std::size_t parts) {
  const std::size_t each = all.size() / parts;
  const std::size_t longer = all.size() % parts;  // parts with one more element, the first ones
  return all.subspan(index * each + std::min(index, longer), each + (index < longer ? 1 : 0));
}

void count_part(std::span<const double> data, std::span<std::uint64_t> bins) {
  constexpr double kBinWidth = 1.0 / static_cast<double>(kHistogramBins + 1);
  std::ranges::fill(bins, 0);
  for (const double x : data) ++bins[static_cast<std::size_t>(x / kBinWidth) % kHistogramBins];
}

Status check_threads(const CpuSet& cpus) {
  if (!cpus.empty()) return {};
  return fail(ErrorCode::invalid, "no CPU to run on; give one for each thread");
}

}  // namespace

Status histogram_fill(std::span<double> data, const CpuSet& cpus) {
  HEADRACE_TRY_STATUS(check_threads(cpus));
  return instruments::run_pinned(cpus, [&](std::size_t i) {
    drand48_data state{};
    srand48_r(static_cast<long>(i), &state);
    for (double& x : histogram_part(data, i, cpus.size())) drand48_r(&state, &x);
  });
}

Result<Nanoseconds> histogram_count(std::span<const double> data, std::span<std::uint64_t> bins,
                                    const CpuSet& cpus) {
  HEADRACE_TRY_STATUS(check_threads(cpus));
  if (bins.size() != cpus.size() * kHistogramBins) {
    return fail(ErrorCode::invalid, "{} bins for {} threads; give {}", bins.size(), cpus.size(),
                cpus.size() * kHistogramBins);
  }
  std::vector<Nanoseconds> begin(cpus.size());
  std::vector<Nanoseconds> end(cpus.size());
  HEADRACE_TRY([[maybe_unused]] const double share,
               instruments::run_together(cpus, [&](std::size_t i) {
                 begin[i] = system_clock().now();
                 count_part(histogram_part(data, i, cpus.size()),
                            bins.subspan(i * kHistogramBins, kHistogramBins));
                 end[i] = system_clock().now();
               }));
  return std::ranges::max(end) - std::ranges::min(begin);
}

}  // namespace headrace
