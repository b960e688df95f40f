// SPDX-License-Identifier: Apache-2.0
// Number of hottest pages against their share of all accesses.
#include <algorithm>
#include <cmath>

#include "core/fail.h"
#include "headrace/advice/hotness.h"

namespace headrace {
namespace {

// Terms of a Zipf sum that are added one by one. The rest is an integral with its first corrections
// (Euler-Maclaurin), exact to 1e-12 from this number on.
constexpr double kSummed = 1000;
constexpr double kMostPages = 1e18;

Status check_part(double value, double most, const char* what) {
  if (std::isfinite(value) && value >= 0 && value <= most) return {};
  return fail(ErrorCode::invalid, "{} is {}; give 0 to {}", what, value, most);
}

// Sorts the histogram, hottest first; returns the sum of all accesses.
Result<double> sorted(std::vector<PageCount>& histogram) {
  double all = 0;
  for (const PageCount& each : histogram) {
    HEADRACE_TRY_STATUS(check_part(each.pages, kMostPages, "a number of pages"));
    HEADRACE_TRY_STATUS(check_part(each.accesses, kMostPages, "a number of accesses"));
    all += each.pages * each.accesses;
  }
  if (all <= 0) return fail(ErrorCode::invalid, "no page was accessed; count for longer");
  std::ranges::stable_sort(histogram, std::greater{}, &PageCount::accesses);
  return all;
}

Status check_zipf(double exponent, double pages) {
  HEADRACE_TRY_STATUS(check_part(exponent, 10, "the exponent of Zipf's law"));
  if (std::isfinite(pages) && pages >= 1 && pages <= kMostPages) return {};
  return fail(ErrorCode::invalid, "{} pages; give 1 or more", pages);
}

}  // namespace

Result<double> pages_for(std::vector<PageCount> histogram, double share) {
  HEADRACE_TRY_STATUS(check_part(share, 1, "the share of accesses"));
  HEADRACE_TRY(const double all, sorted(histogram));
  double rest = share * all, pages = 0;
  for (const PageCount& each : histogram) {
    if (rest <= all * 1e-12 || each.accesses <= 0) break;
    const double taken = std::min(each.pages, rest / each.accesses);
    pages += taken;
    rest -= taken * each.accesses;
  }
  return std::ceil(pages - 1e-6);
}

Result<double> accesses_of(std::vector<PageCount> histogram, double pages) {
  HEADRACE_TRY_STATUS(check_part(pages, kMostPages, "the number of pages"));
  HEADRACE_TRY(const double all, sorted(histogram));
  double taken = 0, rest = pages;
  for (const PageCount& each : histogram) {
    const double part = std::min(each.pages, rest);
    taken += part * each.accesses;
    rest -= part;
  }
  return std::min(taken / all, 1.0);
}

double zipf_sum(double exponent, double n) {
  const double whole = std::min(std::floor(n), kSummed);
  double sum = 0;
  for (double i = 1; i <= whole; ++i) sum += std::pow(i, -exponent);
  if (n <= kSummed) return sum + (n - whole) * std::pow(whole + 1, -exponent);
  const double a = kSummed;
  const double f_a = std::pow(a, -exponent), f_n = std::pow(n, -exponent);
  const double integral =
      std::abs(exponent - 1) < 1e-12 ? std::log(n / a) : (n * f_n - a * f_a) / (1 - exponent);
  return sum + integral + (f_n - f_a) / 2 + exponent * (f_a / a - f_n / n) / 12;
}

Result<double> zipf_pages_for(double exponent, double pages, double share) {
  HEADRACE_TRY_STATUS(check_zipf(exponent, pages));
  HEADRACE_TRY_STATUS(check_part(share, 1, "the share of accesses"));
  const double wanted = share * zipf_sum(exponent, pages);
  double low = 0, high = std::floor(pages);  // low is too few, high is enough
  if (wanted <= 0) return 0;
  while (high - low > 1) {
    const double middle = std::floor((low + high) / 2);
    if (middle <= low || middle >= high) break;  // beyond 2^53 not every page has a number
    (zipf_sum(exponent, middle) >= wanted * (1 - 1e-12) ? high : low) = middle;
  }
  return high;
}

Result<double> zipf_accesses_of(double exponent, double pages, double hottest) {
  HEADRACE_TRY_STATUS(check_zipf(exponent, pages));
  HEADRACE_TRY_STATUS(check_part(hottest, kMostPages, "the number of pages"));
  return zipf_sum(exponent, std::min(hottest, pages)) / zipf_sum(exponent, pages);
}

}  // namespace headrace
