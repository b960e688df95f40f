// Finds the ranges of objects that cover or overlap a given one.
//
// A hash table whose key is (object, length class, cell): class c holds lengths in (2^(c-1), 2^c],
// a cell is 2^c bytes of offset. A range of class c that contains the byte x starts less than 2^c
// below it, so it lies in the cell of x or in the one before: two probes per class in use, however
// many ranges there are. The items carry the chain link themselves; besides them the table costs 6
// to 13 bytes per item. It is not ordered: visits come class by class, shortest first.
//
// Single-thread: the cache calls it under its lock.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/check.h"
#include "headrace/units.h"

namespace headrace {

// Bytes [offset, offset + length) of an object. Not empty, and offset + length does not overflow.
struct Range {
  ObjectId object;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;

  std::uint64_t end() const { return offset + length; }
  bool contains(const Range& other) const {
    return object == other.object && offset <= other.offset && other.end() <= end();
  }
  bool overlaps(const Range& other) const {
    return object == other.object && offset < other.end() && other.offset < end();
  }
  friend auto operator<=>(const Range&, const Range&) = default;
};

// T has `Range range() const` and `T* next_in_cell`.
template <class T>
class RangeIndex {
 public:
  void insert(T& item) {
    // At five items per four cells: just after growing that is 12.8 bytes of cells per item.
    if (size_ >= cells_.size() + cells_.size() / 4) {
      resize(std::max<std::size_t>(kMinCells, cells_.size() * 2));
    }
    link(item);
    ++size_;
    const unsigned c = class_of(item.range().length);
    ++class_sizes_[c];
    classes_ |= std::uint64_t{1} << c;
  }

  // Requires: it is in.
  void remove(T& item) {
    T** link = &cells_[cell_of(item.range())];
    while (*link != &item) {
      CHECK(*link != nullptr);
      link = &(*link)->next_in_cell;
    }
    *link = item.next_in_cell;
    item.next_in_cell = nullptr;
    --size_;
    const unsigned c = class_of(item.range().length);
    if (--class_sizes_[c] == 0) classes_ &= ~(std::uint64_t{1} << c);
    // An eighth full: give memory back, far enough from growing again to not swing.
    if (cells_.size() > kMinCells && size_ < cells_.size() / 8) resize(cells_.size() / 2);
  }

  // Calls visit(T&) for the items that contain `range` until it returns false.
  template <class Visit>
  void covering(const Range& range, Visit&& visit) const {
    const unsigned first = class_of(range.length);
    for (auto left = classes_ >> first << first; left != 0; left &= left - 1) {
      const auto c = static_cast<unsigned>(std::countr_zero(left));
      const std::uint64_t cell = range.offset >> c;
      for (std::uint64_t back = 0; back <= std::min<std::uint64_t>(cell, 1); ++back) {
        for (T* item = cells_[hash(range.object, c, cell - back)]; item != nullptr;) {
          T* const next = item->next_in_cell;
          if (in_cell(*item, c, cell - back) && item->range().contains(range) && !visit(*item)) {
            return;
          }
          item = next;
        }
      }
    }
  }

  // All items that overlap `range`, in no order.
  std::vector<T*> overlapping(const Range& range) const {
    std::vector<T*> found;
    for (auto left = classes_; left != 0; left &= left - 1) {
      const auto c = static_cast<unsigned>(std::countr_zero(left));
      const std::uint64_t reach = (std::uint64_t{1} << c) - 1;
      const std::uint64_t first = (range.offset > reach ? range.offset - reach : 0) >> c;
      const std::uint64_t last = (range.end() - 1) >> c;
      // A long range over short items has more cells than the whole table: look through that once.
      if (last - first >= cells_.size()) {
        return scan(range);
      }
      for (std::uint64_t cell = first; cell <= last; ++cell) {
        for (T* item = cells_[hash(range.object, c, cell)]; item; item = item->next_in_cell) {
          if (in_cell(*item, c, cell) && item->range().overlaps(range)) found.push_back(item);
        }
      }
    }
    return found;
  }

  std::vector<T*> all() const {
    std::vector<T*> found;
    found.reserve(size_);
    for (T* first : cells_) {
      for (T* item = first; item != nullptr; item = item->next_in_cell) found.push_back(item);
    }
    return found;
  }

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

  // 0 for 1, c for lengths in (2^(c-1), 2^c].
  static unsigned class_of(std::uint64_t length) {
    return std::min(63U, static_cast<unsigned>(std::bit_width(length - 1)));
  }

 private:
  static constexpr std::size_t kMinCells = 16;

  // Two cells may share a chain; a visit of one must not report the other's items.
  static bool in_cell(const T& item, unsigned c, std::uint64_t cell) {
    const Range range = item.range();
    return class_of(range.length) == c && range.offset >> c == cell;
  }
  std::vector<T*> scan(const Range& range) const {
    std::vector<T*> found = all();
    std::erase_if(found, [&](T* item) { return !item->range().overlaps(range); });
    return found;
  }
  std::size_t hash(ObjectId object, unsigned c, std::uint64_t cell) const {
    // Multiply and fold, with the odd constants of SplitMix64: neighbours in each part spread.
    std::uint64_t x = cell * 0x9e3779b97f4a7c15 + raw(object) * 0xbf58476d1ce4e5b9 + c;
    x = (x ^ (x >> 32)) * 0x94d049bb133111eb;
    return static_cast<std::size_t>(x >> 32) & (cells_.size() - 1);
  }
  std::size_t cell_of(const Range& range) const {
    const unsigned c = class_of(range.length);
    return hash(range.object, c, range.offset >> c);
  }
  void link(T& item) {
    T*& first = cells_[cell_of(item.range())];
    item.next_in_cell = first;
    first = &item;
  }
  void resize(std::size_t cells) {
    const std::vector<T*> items = all();
    std::vector<T*>(cells, nullptr).swap(cells_);
    for (T* item : items) link(*item);
  }

  std::vector<T*> cells_;  // a power of two, or none
  std::size_t size_ = 0;
  std::uint64_t classes_ = 0;  // bit c: class c has items
  std::array<std::size_t, 64> class_sizes_{};
};

}  // namespace headrace
