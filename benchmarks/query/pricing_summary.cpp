// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/query/pricing_summary.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "core/check.h"
#include "core/fail.h"

namespace headrace {

Result<std::unique_ptr<Pipeline>> PricingSummary::make(std::int64_t last_shipdate,
                                                       std::span<const Column> columns,
                                                       std::uint64_t /*rows*/) {
  for (const Input key : {returnflag, linestatus}) {
    if (columns[key].width != 1) {
      return fail(ErrorCode::invalid, "{} has {} bytes a value; q1 groups by one character",
                  columns[key].name, columns[key].width);
    }
  }
  for (const Input factor : {discount, tax}) {
    if (columns[factor].scale > 2 * columns[factor].width) {
      return fail(ErrorCode::invalid, "{} has scale {} in {} bytes, too fine for q1",
                  columns[factor].name, columns[factor].scale, columns[factor].width);
    }
  }
  // |price| < 2^(8w - 1); |1 - discount| and |1 + tax| < 2^(8w) each, since 10^scale < 2^(7w) by
  // the check above; and kVectorRows = 2^10 of their products are added in 64 bits.
  const unsigned bytes = columns[price].width + columns[discount].width + columns[tax].width;
  if (8 * bytes - 1 + 10 > 62 || columns[quantity].width > 4) {
    return fail(ErrorCode::invalid,
                "columns too wide for q1's exact sums ({} bytes of price, discount and tax, at "
                "most 6; quantity {}, at most 4)",
                bytes, columns[quantity].width);
  }
  return std::unique_ptr<Pipeline>(new PricingSummary(last_shipdate, columns));
}

PricingSummary::PricingSummary(std::int64_t last_shipdate, std::span<const Column> columns)
    : last_shipdate_(last_shipdate),
      columns_(columns.begin(), columns.end()),
      one_discount_(power_of_ten(columns[discount].scale)),
      one_tax_(power_of_ten(columns[tax].scale)),
      group_of_key_(std::size_t{1} << 16, kUnseen) {}

Status PricingSummary::consume(std::span<const ColumnSlice> columns) {
  const auto column = [&](Input input) { return &columns[input]; };
  switch (static_cast<Input>(columns.size() - 1)) {
    case shipdate:
      select_range(columns[shipdate], std::numeric_limits<std::int64_t>::min(), last_shipdate_,
                   selection_);
      break;
    case returnflag: break;  // the group needs both keys
    case linestatus: return assign_groups(columns[returnflag], columns[linestatus]);
    case quantity:
      add<1>({column(quantity)}, sum_quantity, [](const auto& v, auto i) { return v[0][i]; });
      break;
    case price:
      add<1>({column(price)}, sum_price, [](const auto& v, auto i) { return v[0][i]; });
      break;
    case discount:
      add<1>({column(discount)}, sum_discount, [](const auto& v, auto i) { return v[0][i]; });
      add<2>({column(price), column(discount)}, sum_disc_price,
             [one = one_discount_](const auto& v, auto i) { return v[0][i] * (one - v[1][i]); });
      break;
    case tax:
      add<3>({column(price), column(discount), column(tax)}, sum_charge,
             [one = one_discount_, one_tax = one_tax_](const auto& v, auto i) {
               return v[0][i] * (one - v[1][i]) * (one_tax + v[2][i]);
             });
      break;
  }
  return {};
}

Result<std::uint8_t> PricingSummary::add_group(std::uint16_t key) {
  if (groups_.size() == kNoGroup) {
    return fail(ErrorCode::invalid,
                "more than {} pairs of l_returnflag and l_linestatus; is this lineitem?", kNoGroup);
  }
  groups_.push_back({.key = key});
  return group_of_key_[key] = static_cast<std::uint8_t>(groups_.size() - 1);
}

Status PricingSummary::assign_groups(const ColumnSlice& flags, const ColumnSlice& statuses) {
  const std::size_t rows = flags.rows();
  group_of_row_.resize(rows);
  std::array<std::array<std::uint32_t, 256>, kLanes> counts{};
  for (std::size_t i = 0; i < rows; ++i) {
    const auto key = static_cast<std::uint16_t>(std::to_integer<unsigned>(flags.bytes[i]) << 8 |
                                                std::to_integer<unsigned>(statuses.bytes[i]));
    std::uint8_t group = group_of_key_[key];
    // Only selected rows may make a group; rare, since only the first row of each does.
    if (group == kUnseen && selection_[i] != 0) [[unlikely]] {
      HEADRACE_TRY(group, add_group(key));
    }
    // Not selected: all bits set, which is kNoGroup.
    group = static_cast<std::uint8_t>(group | ~static_cast<std::uint8_t>(selection_[i]));
    group_of_row_[i] = group;
    ++counts[i % kLanes][group];
  }
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    for (const auto& lane : counts) groups_[g].count += lane[g];
  }
  return {};
}

template <std::size_t kInputs, class F>
void PricingSummary::add(std::array<const ColumnSlice*, kInputs> inputs, Sum sum, F f) {
  alignas(64) std::array<std::array<std::int64_t, kVectorRows>, kInputs> values;  // cache line
  alignas(64) std::array<std::int64_t, kVectorRows> out;
  const std::size_t rows = group_of_row_.size();
  for (std::size_t first = 0; first < rows; first += kVectorRows) {
    const std::size_t count = std::min(kVectorRows, rows - first);
    for (std::size_t k = 0; k < kInputs; ++k) widen(*inputs[k], first, count, values[k].data());
    for (std::size_t i = 0; i < count; ++i) out[i] = f(values, i);
    scatter(out.data(), first, count);
    collect(sum);
  }
}

void PricingSummary::scatter(const std::int64_t* values, std::size_t first, std::size_t count) {
  const std::uint8_t* groups = group_of_row_.data() + first;
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    partial_[0][groups[i]] += values[i];
    partial_[1][groups[i + 1]] += values[i + 1];
    partial_[2][groups[i + 2]] += values[i + 2];
    partial_[3][groups[i + 3]] += values[i + 3];
  }
  for (; i < count; ++i) partial_[0][groups[i]] += values[i];
}

void PricingSummary::collect(Sum sum) {
  for (auto& lane : partial_) {
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      groups_[g].sums[sum] += std::exchange(lane[g], 0);
    }
    lane[kNoGroup] = 0;
  }
}

Status PricingSummary::merge(const Pipeline& other) {
  const auto* same = dynamic_cast<const PricingSummary*>(&other);
  CHECK(same != nullptr);
  for (const Group& theirs : same->groups_) {
    std::uint8_t group = group_of_key_[theirs.key];
    if (group == kUnseen) {
      HEADRACE_TRY(group, add_group(theirs.key));
    }
    groups_[group].count += theirs.count;
    for (std::size_t s = 0; s < kSums; ++s) groups_[group].sums[s] += theirs.sums[s];
  }
  return {};
}

Answer PricingSummary::answer() const {
  Answer answer{
      .columns = {"l_returnflag", "l_linestatus", "sum_qty", "sum_base_price", "sum_disc_price",
                  "sum_charge", "sum_disc", "avg_qty", "avg_price", "avg_disc", "count_order"},
      .rows = {}};
  std::vector<Group> ordered = groups_;
  std::ranges::sort(ordered, {}, &Group::key);
  const unsigned price_scale = columns_[price].scale;
  const unsigned disc_price_scale = price_scale + columns_[discount].scale;
  for (const Group& g : ordered) {
    const auto average = [&](Sum sum, Input input) {
      const unsigned scale = columns_[input].scale;
      return average_text(g.sums[sum], scale, g.count, std::max(kAverageDigits, scale));
    };
    answer.rows.push_back(
        {.keys = {std::string(1, static_cast<char>(g.key >> 8)),
                  std::string(1, static_cast<char>(g.key & 0xff))},
         .values = {decimal_text(g.sums[sum_quantity], columns_[quantity].scale),
                    decimal_text(g.sums[sum_price], price_scale),
                    decimal_text(g.sums[sum_disc_price], disc_price_scale),
                    decimal_text(g.sums[sum_charge], disc_price_scale + columns_[tax].scale),
                    decimal_text(g.sums[sum_discount], columns_[discount].scale),
                    average(sum_quantity, quantity), average(sum_price, price),
                    average(sum_discount, discount), std::to_string(g.count)}});
  }
  return answer;
}

}  // namespace headrace
