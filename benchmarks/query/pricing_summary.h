// SPDX-License-Identifier: Apache-2.0
// TPC-H Q1, the pricing summary: sums by return flag and line status. Thread-compatible.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "benchmarks/query/queries.h"

namespace headrace {

class PricingSummary final : public Pipeline {
 public:
  // Sums rows up to the day `last_shipdate`. Errors: invalid: a column so wide that a charge would
  // exceed 64 bits, or a key of more than one byte.
  static Result<std::unique_ptr<Pipeline>> make(std::int64_t last_shipdate,
                                                std::span<const Column> columns,
                                                std::uint64_t rows);

  Status consume(std::span<const ColumnSlice> columns) override;
  Status merge(const Pipeline& other) override;
  Answer answer() const override;

 private:
  // The order of the columns, and of their sums.
  enum Input : std::size_t { shipdate, returnflag, linestatus, quantity, price, discount, tax };
  enum Sum : std::size_t { sum_quantity, sum_price, sum_disc_price, sum_charge, sum_discount };
  static constexpr std::size_t kSums = 5;
  // A group is a byte; the last value marks rows that are not selected.
  static constexpr std::uint8_t kNoGroup = 255;
  static constexpr std::uint8_t kUnseen = 255;

  struct Group {
    std::uint16_t key = 0;  // return flag << 8 | line status
    std::uint64_t count = 0;
    std::array<Int128, kSums> sums{};
  };

  PricingSummary(std::int64_t last_shipdate, std::span<const Column> columns);
  Status assign_groups(const ColumnSlice& flags, const ColumnSlice& statuses);
  Result<std::uint8_t> add_group(std::uint16_t key);
  // Adds f(vector of inputs) of each row to the sum `sum` of the row's group.
  template <std::size_t kInputs, class F>
  void add(std::array<const ColumnSlice*, kInputs> inputs, Sum sum, F f);
  void scatter(const std::int64_t* values, std::size_t first, std::size_t count);
  void collect(Sum sum);

  const std::int64_t last_shipdate_;
  const std::vector<Column> columns_;
  const std::int64_t one_discount_;  // 1 in the units of l_discount and l_tax
  const std::int64_t one_tax_;
  Selection selection_;
  std::vector<std::uint8_t> group_of_row_;
  std::vector<std::uint8_t> group_of_key_;  // 65536 entries; kUnseen: none yet
  std::vector<Group> groups_;
  // Partial sums of at most kVectorRows rows. Four in turn: otherwise consecutive rows of one group
  // would wait for each other's store.
  static constexpr std::size_t kLanes = 4;
  std::array<std::array<std::int64_t, 256>, kLanes> partial_{};
};

}  // namespace headrace
