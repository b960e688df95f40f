#include "measure/samples.h"

#include "headrace/statistics.h"

namespace headrace {

std::optional<RateSummary> summarize_rates(std::span<const double> bytes_per_second) {
  const auto middle = median(bytes_per_second);
  const auto deviation = median_absolute_deviation(bytes_per_second);
  if (!middle || !deviation) return std::nullopt;
  return RateSummary{{*middle}, *middle > 0 ? *deviation / *middle : 0};
}

std::optional<double> paired_ratio(std::span<const double> own, std::span<const double> reference) {
  if (own.size() != reference.size()) return std::nullopt;
  std::vector<double> ratios;
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (reference[i] > 0) ratios.push_back(own[i] / reference[i]);
  }
  return median(ratios);
}

}  // namespace headrace
