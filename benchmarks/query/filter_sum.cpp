// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/query/filter_sum.h"

#include <bit>
#include <utility>

#include "core/check.h"
#include "core/fail.h"

namespace headrace {

Result<std::unique_ptr<Pipeline>> FilterSum::make(std::vector<RangeFilter> filters, SumOf sum,
                                                  std::span<const Column> columns,
                                                  std::uint64_t rows) {
  // |product| <= 2^(8 * bytes of factors - number of factors), times the rows, in 127 bits.
  unsigned bits = 8 * columns[sum.value].width + static_cast<unsigned>(std::bit_width(rows));
  unsigned scale = columns[sum.value].scale;
  if (sum.factor) {
    bits += 8 * columns[*sum.factor].width;
    scale += columns[*sum.factor].scale;
  }
  if (bits > 126) {
    return fail(ErrorCode::invalid,
                "columns too wide for an exact sum over {} rows ({} bits, at most 126); store {} "
                "in fewer bytes",
                rows, bits, columns[sum.value].name);
  }
  return std::unique_ptr<Pipeline>(new FilterSum(std::move(filters), std::move(sum), scale));
}

FilterSum::FilterSum(std::vector<RangeFilter> filters, SumOf sum, unsigned scale)
    : filters_(std::move(filters)), sum_(std::move(sum)), scale_(scale) {}

Status FilterSum::consume(std::span<const ColumnSlice> columns) {
  const std::size_t index = columns.size() - 1;
  for (const RangeFilter& filter : filters_) {
    if (filter.column != index) continue;
    if (&filter == &filters_.front()) {
      select_range(columns[index], filter.low, filter.high, selection_);
    } else {
      refine_range(columns[index], filter.low, filter.high, selection_);
    }
  }
  if (index == sum_.value) {
    total_ += sum_.factor ? sum_products_selected(columns[index], columns[*sum_.factor], selection_)
                          : sum_selected(columns[index], selection_);
  }
  return {};
}

Status FilterSum::merge(const Pipeline& other) {
  const auto* same = dynamic_cast<const FilterSum*>(&other);
  CHECK(same != nullptr);
  total_ += same->total_;
  return {};
}

Answer FilterSum::answer() const {
  return {.columns = {sum_.name}, .rows = {{.keys = {}, .values = {decimal_text(total_, scale_)}}}};
}

}  // namespace headrace
