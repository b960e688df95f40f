// SPDX-License-Identifier: Apache-2.0
// Finds the ranges of objects that cover or overlap a given range.
//
// A hash table with the key (object, length class, cell). Class c holds lengths in (2^c, 2^(c+1)],
// class 0 also 1. A cell is 2^(c+1) bytes of offset. A range of class c that contains byte x starts
// less than a cell below x, so it lies in the cell of x or in the one before. A lookup takes two
// probes per class in use, for any number of ranges. It is not ordered: visits go class by class,
// shortest first. The items carry the chain link themselves. Besides the items, the tables cost 6
// to 26 bytes per item, outgrown tables included.
//
// The table grows by a few cells at each insertion. Until all are moved, a cell lies in the old
// table or, once it was moved, as two cells in the new one. Outgrown tables are kept, one of each
// size, and used again: a thread that still reads one misses items, or finds moved ones.
//
// Single-thread: the cache calls it under its lock. racing(), racing_equal() and ask_for_...() are
// Thread-safe beside all other calls, if items live as long as the index.
#pragma once

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>

#include "cache/structures/relaxed.h"
#include "cache/structures/zeroed_array.h"
#include "core/check.h"
#include "core/turns/draws.h"
#include "headrace/units.h"

namespace headrace {

// Bytes [offset, offset + length) of an object. Not empty; offset + length does not overflow.
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

// Drawn once in each process, or by a simulation, whose runs are all the same. Thread-safe.
inline std::uint64_t hash_secret() {
  if (simulated_draws != nullptr) return 1;
  static const std::uint64_t secret = [] {
    std::uint64_t drawn = 0;
    if (getrandom(&drawn, sizeof drawn, GRND_NONBLOCK) == sizeof drawn) return drawn;
    return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  }();
  return secret;
}

// T has `Range range() const` and `ChainLink<T> next_in_cell`.
template <class T>
class RangeIndex {
 public:
  // Most ranges in a cell, so that lookups are bounded. At most two ranges of a cell do not
  // overlap. Call crowded() before an insertion.
  static constexpr unsigned kMostInCell = 64;

  // Makes space for `items`; the table does not shrink below that.
  void reserve(std::size_t items) {
    least_ = std::bit_ceil(std::max(kMinCells, items - items / 5));
    if (cells() < least_) resize(least_);
  }

  // Then the next insertion allocates nothing.
  void make_room() {
    move_some(kMoved);
    // At five items per four cells. Just after growing that is 12.8 bytes of cells per item.
    if (size_ < cells() + cells() / 4) return;
    if (cells() < kMinCells) return resize(kMinCells);
    move_some(cells());  // usually all are moved long before
    begin_to_grow();
  }
  void insert(T& item) {
    make_room();
    link(item);
    ++size_;
    const unsigned c = class_of(item.range().length);
    if (++class_sizes_[c] == 1) classes_ = classes_ | std::uint64_t{1} << c;
  }

  // Requires: the item is in the index.
  void remove(T& item) {
    ChainLink<T>* link = &cell_of(item.range());
    while (*link != &item) {
      CHECK(*link != nullptr);
      link = &(*link)->next_in_cell;
    }
    *link = item.next_in_cell;
    item.next_in_cell = nullptr;
    --size_;
    const unsigned c = class_of(item.range().length);
    if (--class_sizes_[c] == 0) classes_ = classes_ & ~(std::uint64_t{1} << c);
    // At an eighth, which is far from growing again. A smaller table makes scans shorter.
    if (cells() > least_ && size_ < cells() / 8) {
      try {
        resize(cells() / 2);
      } catch (const std::bad_alloc&) {
        // The table keeps its size.
      }
    }
  }

  // If the cell of `range` is full, one of its items; else null.
  T* crowded(const Range& range) const {
    unsigned items = 0;
    const unsigned c = class_of(range.length);
    for (T* item = cell_of(range); item != nullptr; item = item->next_in_cell) {
      if (in_cell(*item, c, number(range.offset, c)) && ++items == kMostInCell) return item;
    }
    return nullptr;
  }

  // Calls visit(T&) for the items that contain `range`, until it returns false.
  template <class Visit>
  void covering(const Range& range, Visit&& visit) const {
    const unsigned first = class_of(range.length);
    for (std::uint64_t left = classes_ >> first << first; left != 0; left &= left - 1) {
      const auto c = static_cast<unsigned>(std::countr_zero(left));
      const std::uint64_t cell = number(range.offset, c);
      for (std::uint64_t back = 0; back <= std::min<std::uint64_t>(cell, 1); ++back) {
        for (T* item = cell_at(range.object, c, cell - back); item != nullptr;) {
          T* const next = item->next_in_cell;
          if (in_cell(*item, c, cell - back) && item->range().contains(range) && !visit(*item)) {
            return;
          }
          item = next;
        }
      }
    }
  }

  // Without the lock: prefetch the memory that racing_equal() is going to read.
  void ask_for_cell(const Range& range) const { __builtin_prefetch(&cell_of(range)); }
  void ask_for_item(const Range& range) const {
    const T* const item = new_cell_of(range);
    if (item == nullptr) return;
    __builtin_prefetch(item);
    __builtin_prefetch(reinterpret_cast<const std::byte*>(item) + 64);
  }

  // Without the lock: an item that had exactly this range when it was read; null: none was seen.
  // While the index grows, it finds only items that have moved.
  [[gnu::always_inline]] T* racing_equal(const Range& range) const {
    constexpr unsigned kMostItems = 16;  // a changing chain could be endless
    T* item = new_cell_of(range);
    for (unsigned i = 0; item != nullptr && i < kMostItems; ++i, item = item->next_in_cell) {
      if (item->range() == range) [[likely]]
        return item;
    }
    return nullptr;
  }

  // Without the lock: calls visit(T&) for items that contained `range` when they were read, as
  // covering() does, until it returns false. It may miss some. It visits no classes after the first
  // with an item. False: it gave up, since the chains changed.
  template <class Visit>
  bool racing(const Range& range, Visit&& visit) const {
    constexpr unsigned kMostItems = 64;  // a changing chain could be endless
    unsigned items = 0;
    const unsigned first = class_of(range.length);
    bool found = false;
    for (std::uint64_t left = classes_ >> first << first; left != 0 && !found; left &= left - 1) {
      const auto c = static_cast<unsigned>(std::countr_zero(left));
      const std::uint64_t cell = number(range.offset, c);
      for (std::uint64_t back = 0; back <= std::min<std::uint64_t>(cell, 1); ++back) {
        T* item = cell_at(range.object, c, cell - back);
        for (; item != nullptr; item = item->next_in_cell) {
          if (++items > kMostItems) return false;
          if (!item->range().contains(range)) continue;
          found = true;
          if (!visit(*item)) return true;
        }
      }
    }
    return true;
  }

  bool overlaps(const Range& range) const {
    bool any = false;
    visit_overlapping(range, [&](T&) { return !(any = true); });
    return any;
  }

  // Calls visit(T&) for the items that overlap `range`, until it returns false. `visit` may remove
  // the item, and insert others if reserve() made space for them.
  template <class Visit>
  void visit_overlapping(const Range& range, Visit&& visit) const {
    for (std::uint64_t left = classes_; left != 0; left &= left - 1) {
      const auto c = static_cast<unsigned>(std::countr_zero(left));
      const std::uint64_t reach = (std::uint64_t{2} << c) - 1;
      const std::uint64_t first = number(range.offset > reach ? range.offset - reach : 0, c);
      const std::uint64_t last = number(range.end() - 1, c);
      // A long range over short items has more cells than the table: then scan the table once.
      if (last - first >= cells()) return scan(range, visit);
      for (std::uint64_t cell = first; cell <= last; ++cell) {
        for (T* item = cell_at(range.object, c, cell); item != nullptr;) {
          T* const next = item->next_in_cell;
          if (in_cell(*item, c, cell) && item->range().overlaps(range) && !visit(*item)) return;
          item = next;
        }
      }
    }
  }

  // The most cells that visit_overlapping() would read.
  std::uint64_t cells_of(const Range& range) const {
    std::uint64_t looks = 0;
    for (std::uint64_t left = classes_; left != 0; left &= left - 1) {
      looks += number(range.length - 1, static_cast<unsigned>(std::countr_zero(left))) + 3;
    }
    return std::min<std::uint64_t>(looks, cells());
  }

  // The position of a walk through all items that overlap a range.
  struct Cursor {
    bool ended = false;
    std::size_t cells = 0;
    std::size_t at = 0;
  };
  // Writes the next items that overlap `range` to `out` and returns their number. Reads about
  // out.size() cells, at least one. The index may change between calls: an item that stays is
  // found, if the items found in a range of few cells are removed each time. Leaves out items for
  // which skip(T&) is true. Requires: no chain is longer than out.
  template <class Skip>
  std::size_t next(const Range& range, Cursor& cursor, std::span<T*> out, const Skip& skip) const {
    std::size_t found = 0;
    if (cells_of(range) <= out.size()) {
      visit_overlapping(range, [&](T& item) {
        if (!skip(item)) out[found++] = &item;
        return found < out.size();
      });
      cursor.ended = found < out.size();
      return found;
    }
    // The number of cells is unchanged, so each item is where it was.
    if (cursor.cells != cells()) cursor = {.cells = cells()};
    const std::size_t end = std::min(cursor.at + out.size(), cells());
    for (; cursor.at < end; cursor.at = next_cell(cursor.at)) {
      const std::size_t before = found;
      for (T* item = chain(cursor.at); item != nullptr; item = item->next_in_cell) {
        if (!item->range().overlaps(range) || skip(*item)) continue;
        if (found == out.size()) {
          CHECK(before > 0);
          return before;  // this cell the next time
        }
        out[found++] = item;
      }
    }
    cursor.ended = cursor.at >= cells();
    return found;
  }

  // Thread-safe. While it grows, racing_equal() finds only some items.
  bool is_growing() const { return old_.load() != nullptr; }
  // Moves the items of at most `most` cells of the old table.
  void move_some(std::size_t most) {
    const Table* const old = old_.load();
    if (old == nullptr) return;
    std::size_t at = moved_;
    moved_ = std::min(old->cells, at + most);
    for (; at < moved_; ++at) {
      T* const item = old->at[at];
      old->at[at] = nullptr;
      link_all(item);
    }
    if (moved_ == old->cells) old_.store(nullptr);
  }

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

  // The class of a length: c for lengths in (2^c, 2^(c+1)], 0 also for 1.
  static unsigned class_of(std::uint64_t length) {
    return 63U ^ static_cast<unsigned>(std::countl_zero((length - 1) | 1));
  }

 private:
  static constexpr std::size_t kMinCells = 16;

  // The cell of class c with that byte. Two shifts, because a cell of class 63 is everything.
  static std::uint64_t number(std::uint64_t offset, unsigned c) { return offset >> c >> 1; }
  // Two cells may share a chain. A visit of one cell must not report items of the other.
  static bool in_cell(const T& item, unsigned c, std::uint64_t cell) {
    const Range range = item.range();
    return class_of(range.length) == c && number(range.offset, c) == cell;
  }
  template <class Visit>
  void scan(const Range& range, const Visit& visit) const {
    for (std::size_t i = 0; i < cells(); i = next_cell(i)) {
      for (T* item = chain(i); item != nullptr;) {
        T* const next = item->next_in_cell;
        if (item->range().overlaps(range) && !visit(*item)) return;
        item = next;
      }
    }
  }

  struct Table {
    std::size_t cells = 0;  // a power of two; 0 before the first insertion
    unsigned shift = 63;    // 64 - log2(cells)
    ZeroedArray<ChainLink<T>> at;
  };

  // The upper bits of a sum of products (Fibonacci hashing, Knuth 6.4), with odd constants of
  // SplitMix64. Neighbours in each part spread, and the products do not wait for each other. There
  // are 64 classes. For fixed constants, offsets could be chosen that all fall into one cell; the
  // secret differs from process to process.
  [[gnu::always_inline]] std::uint64_t hash(ObjectId object, unsigned c,
                                            std::uint64_t number) const {
    return (number ^ secret_) * 0x9e3779b97f4a7c15 + (raw(object) * 64 + c) * 0xbf58476d1ce4e5b9;
  }
  [[gnu::always_inline]] ChainLink<T>& cell_at(ObjectId object, unsigned c,
                                               std::uint64_t number) const {
    const std::uint64_t x = hash(object, c, number);
    // Acquire: pairs with the stores of begin_to_grow() and resize(), which come after the cells
    // are made.
    const Table* const old = old_.load(std::memory_order_acquire);
    if (old != nullptr && x >> old->shift >= moved_) [[unlikely]]
      return old->at[x >> old->shift];
    const Table* const table = table_.load(std::memory_order_acquire);  // pairs with the same
    return table->at[x >> table->shift];
  }
  [[gnu::always_inline]] ChainLink<T>& new_cell_of(const Range& range) const {
    const unsigned c = class_of(range.length);
    // Acquire: pairs with the stores of begin_to_grow() and resize().
    const Table* const table = table_.load(std::memory_order_acquire);
    return table->at[hash(range.object, c, number(range.offset, c)) >> table->shift];
  }
  [[gnu::always_inline]] ChainLink<T>& cell_of(const Range& range) const {
    const unsigned c = class_of(range.length);
    return cell_at(range.object, c, number(range.offset, c));
  }

  const Table* table() const { return table_.load(); }
  std::size_t cells() const { return table()->cells; }
  bool is_old(std::size_t i) const { return old_.load() != nullptr && i / 2 >= moved_; }
  // The items of cell i of the new table, or of the old cell that becomes cells i and i + 1.
  T* chain(std::size_t i) const { return is_old(i) ? old_.load()->at[i / 2] : table()->at[i]; }
  std::size_t next_cell(std::size_t i) const { return is_old(i) ? i / 2 * 2 + 2 : i + 1; }

  void link(T& item) {
    ChainLink<T>& first = cell_of(item.range());
    item.next_in_cell = first;
    first = &item;
  }
  Table& table_of(std::size_t cells) {
    Table& table = tables_[static_cast<unsigned>(std::countr_zero(cells))];
    if (table.cells == 0) {
      table.at = ZeroedArray<ChainLink<T>>(cells);
      table.cells = cells;
      table.shift = 64 - static_cast<unsigned>(std::countr_zero(cells));
    }
    return table;
  }
  void begin_to_grow() {
    Table& next = table_of(cells() * 2);
    // Until the second store a reader finds nothing, or the items of the old table.
    moved_ = 0;
    old_.store(table());
    table_.store(&next);
  }
  void link_all(T* item) {
    while (item != nullptr) {
      T* const next = item->next_in_cell;
      link(*item);
      item = next;
    }
  }
  // All at once: for the first items, and for a smaller table.
  void resize(std::size_t cells) {
    move_some(this->cells());
    Table& next = table_of(cells);
    const Table& old = *table();
    table_.store(&next);
    for (std::size_t i = 0; i < old.cells; ++i) {
      T* const item = old.at[i];
      old.at[i] = nullptr;
      link_all(item);
    }
  }

  static constexpr std::size_t kMoved = 4;  // at each insertion
  const std::uint64_t secret_ = hash_secret();
  std::array<Table, 64> tables_;  // the tables of 2^i cells needed so far
  // The table before the first insertion.
  const Table none_{.at = ZeroedArray<ChainLink<T>>(2)};
  // Fields that hits read lie on another cache line than the counts, which each insertion changes.
  alignas(64) std::atomic<const Table*> table_{&none_};
  std::atomic<const Table*> old_{nullptr};  // while the index grows
  Relaxed<std::size_t> moved_ = 0;          // cells of the old table
  Relaxed<std::uint64_t> classes_{0};       // bit c: class c has items
  alignas(64) std::size_t size_ = 0;
  std::size_t least_ = kMinCells;
  std::array<std::size_t, 64> class_sizes_{};
};

}  // namespace headrace
