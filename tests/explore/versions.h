// SPDX-License-Identifier: Apache-2.0
// Rows of memory that a writer changes while others read copies of them, and a check that the reads
// of each row are linearizable: a write ends with the return of invalidate(). For one schedule.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "tests/explore/explore.h"
#include "tests/support/cache_rig.h"
#include "tests/support/versioned.h"

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
      rows_[i].restart(static_cast<unsigned>(i));
    }
  }

  Extent row(std::size_t index) const { return source_.at(index * row_, row_); }
  Extent half(std::size_t index) const { return source_.at(index * row_, row_ / 2); }
  const Object& object() const { return source_.object(); }

  // Writes the next version and publishes it. One writer per row.
  template <class Publish>
  void write(std::size_t index, const Publish& publish) {
    const unsigned version = rows_[index].begin_write();
    std::memset(source_.bytes().data() + index * row_, static_cast<int>(version), row_);
    publish();
    rows_[index].end_write(version);
  }

  // Reads by `get`, which returns the bytes of a copy.
  template <class Get>
  void read(std::size_t index, const Get& get) {
    const unsigned least = rows_[index].begin_read();
    const char* const wrong = rows_[index].end_read(least, version_of(get()));
    trial_.require(wrong == nullptr, wrong == nullptr ? "" : wrong);
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
  Trial& trial_;
  const std::uint64_t row_;
  test::Source source_;
  std::vector<test::Versioned<unsigned>> rows_;
};

}  // namespace headrace::explore
