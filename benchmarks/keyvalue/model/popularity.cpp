// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/keyvalue/model/popularity.h"

#include <algorithm>
#include <cmath>

namespace headrace::kv_bench {
namespace {

// A group spans ranks that differ by at most 2 %, and has at most this share of all pages.
constexpr double kWidth = 1.02;
constexpr double kMostOfPages = 1.0 / 256;
// The last group: pages so rarely used that they count as equal.
constexpr double kLastOfPages = 1e-4;

// The end of a group of ranks that begins at `begin`.
std::uint64_t end_of(std::uint64_t begin, double most) {
  const double b = static_cast<double>(begin);
  return begin + static_cast<std::uint64_t>(std::max(1.0, std::min(b * (kWidth - 1), most)));
}

// The first rank on a page identifies it; that rank is at least r with probability exp(-r / pages).
// Later ranks are spread evenly over all pages.
std::vector<PageGroup> scrambled(double pages) {
  const ZipfRanks ranks(kYcsbItems);
  std::vector<PageGroup> groups;
  double left = pages;
  for (std::uint64_t begin = 0; left > 0;) {
    const std::uint64_t end = end_of(begin, std::max(1.0, pages * kMostOfPages));
    double rest = pages * std::exp(-static_cast<double>(end) / pages);
    if (rest < pages * kLastOfPages) rest = 0;
    const double count = left - rest, span = static_cast<double>(end - begin);
    const double own = (ranks.below(end) - ranks.below(begin)) / span;
    // On average half of the group's own ranks come before the later ones.
    const double beyond = 1 - (ranks.below(begin) + ranks.below(end)) / 2;
    groups.push_back({count, count * (own + beyond / pages)});
    left = rest;
    begin = end;
  }
  return groups;
}

std::vector<PageGroup> latest(std::uint64_t records, double records_per_page) {
  const ZipfRanks ages(records);
  std::vector<PageGroup> groups;
  const double most = static_cast<double>(records) * kMostOfPages;
  for (std::uint64_t begin = 0; begin < records;) {
    std::uint64_t end = end_of(begin, most);
    end = std::max(end, begin + static_cast<std::uint64_t>(std::ceil(records_per_page)));
    end = std::min(end, records);
    groups.push_back({static_cast<double>(end - begin) / records_per_page,
                      ages.below(end) - ages.below(begin), static_cast<double>(begin)});
    begin = end;
  }
  return groups;
}

}  // namespace

std::vector<PageGroup> page_groups(const Workload& workload, std::uint64_t records,
                                   double records_per_page) {
  auto groups = workload.latest
                    ? latest(records, records_per_page)
                    : scrambled(std::max(1.0, static_cast<double>(records) / records_per_page));
  double all = 0;
  for (const PageGroup& group : groups) all += group.share;
  for (PageGroup& group : groups) group.share /= all;
  return groups;
}

}  // namespace headrace::kv_bench
