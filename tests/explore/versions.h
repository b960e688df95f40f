// SPDX-License-Identifier: Apache-2.0
// Rows of memory that a writer changes while others read copies of them, and a check that what they
// read could be: each read takes effect between its begin and its end, each write between its begin
// and the return of invalidate() (linearizability of one row). For one schedule.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "tests/explore/explore.h"
#include "tests/support/cache_rig.h"

namespace headrace::explore {

class Versions {
 public:
  static constexpr std::uint64_t kRow = 512;

  Versions(Trial& trial, std::size_t rows, std::uint64_t row = kRow)
      : trial_(trial), row_(row), source_(row * rows), rows_(rows) {
    std::memset(source_.bytes().data(), 0, source_.bytes().size());
  }
  // The version of each row is its index, and stays.
  void number() {
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      std::memset(source_.bytes().data() + i * row_, static_cast<int>(i), row_);
      rows_[i].written = rows_[i].published = static_cast<unsigned>(i);
    }
  }

  Extent row(std::size_t index) const { return source_.at(index * row_, row_); }
  Extent half(std::size_t index) const { return source_.at(index * row_, row_ / 2); }
  const Object& object() const { return source_.object(); }

  // Writes the next version and publishes it. One writer per row.
  template <class Publish>
  void write(std::size_t index, const Publish& publish) {
    Row& row = rows_[index];
    ++row.written;
    std::memset(source_.bytes().data() + index * row_, static_cast<int>(row.written), row_);
    publish();
    row.published = row.written;
  }

  // Reads by `get`, which returns the bytes of a copy.
  template <class Get>
  void read(std::size_t index, const Get& get) {
    Row& row = rows_[index];
    const unsigned published = row.published;
    const unsigned seen_before = row.seen;
    const std::span<const std::byte> bytes = get();
    const unsigned version = version_of(bytes);
    trial_.require(version >= published, "no read returns bytes older than invalidate()");
    trial_.require(version <= row.written, "no read returns bytes that were never written");
    trial_.require(version >= seen_before,
                   "no read returns older bytes than one that ended before");
    row.seen = std::max(row.seen, version);
  }
  unsigned version_of(std::span<const std::byte> bytes) const {
    trial_.require(bytes.size() == row_ || bytes.size() == row_ / 2,
                   "a copy has the length of its row");
    const std::byte first = bytes[0];
    trial_.require(std::ranges::all_of(bytes, [first](std::byte b) { return b == first; }),
                   "a copy has the bytes of one version");
    return std::to_integer<unsigned>(first);
  }

 private:
  struct Row {
    unsigned written = 0;
    unsigned published = 0;
    unsigned seen = 0;
  };
  Trial& trial_;
  const std::uint64_t row_;
  test::Source source_;
  std::vector<Row> rows_;
};

}  // namespace headrace::explore
