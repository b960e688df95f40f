// SPDX-License-Identifier: Apache-2.0
// The extents of a strided plan that are not yet items: numbers that are computed when needed.
// Single-thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "cache/structures/entry.h"
#include "headrace/cache.h"

namespace headrace {

class Steps {
 public:
  // Returns the first number from the given one on whose extent belongs to the shard, or any number
  // that is too large.
  using FromShard = std::function<std::uint64_t(std::uint64_t)>;

  Steps() = default;
  // Requires: all extents lie in the object and have bytes; the stride is not 0. About one in
  // `shards` extents belongs to the shard. `from_shard` null: all of them do.
  Steps(const Strided& all, FromShard from_shard, std::uint64_t shards)
      : all_(all), from_shard_(std::move(from_shard)), shards_(shards) {
    go_to(0);
  }

  bool done() const { return next_ >= all_.count; }
  // The next extent. Requires: !done().
  Extent next() const { return {all_.object, offset_of(next_), all_.length}; }
  // The bytes planned before an extent in this shard: about.
  std::uint64_t position() const { return position_of(next_); }
  std::uint64_t position_of(std::uint64_t number) const {
    return number / shards_ * all_.length.value;
  }
  std::uint64_t number() const { return next_; }
  // Goes on with the first extent from this number on.
  void go_to(std::uint64_t number) { next_ = from_shard_ ? from_shard_(number) : number; }

  // The number of the first extent that contains the range or lies inside it.
  std::optional<std::uint64_t> find(const Range& range) const;
  // The same for extents inside the range only.
  std::optional<std::uint64_t> find_inside(const Range& range) const;
  // Whether an extent overlaps the range. Also true for some extents of other shards.
  bool overlap(const Range& range) const;
  // From the first extent to the end of the last one.
  Range bounds() const {
    return {all_.object->id(), all_.offset, offset_of(all_.count - 1) + length() - all_.offset};
  }

 private:
  std::uint64_t length() const { return all_.length.value; }
  std::uint64_t offset_of(std::uint64_t number) const { return all_.offset + number * all_.stride; }
  // The first number from `next_` on whose extent begins at `offset` or later.
  std::uint64_t from(std::uint64_t offset) const;
  bool is_of(const Range& range) const { return !done() && range.object == all_.object->id(); }

  Strided all_;
  FromShard from_shard_;
  std::uint64_t shards_ = 1;
  std::uint64_t next_ = 0;
};

}  // namespace headrace
