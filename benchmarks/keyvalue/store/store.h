// SPDX-License-Identifier: Apache-2.0
// Values by name on the library itself: in a heap, or in a file whose most used parts a cache keeps
// in memory. Single-thread; the library's own threads complete reads.
//
// It is a measuring object, not a database: nothing outlives the process. Values are written to the
// file through the page cache and read past it, so that uncached values come from the device.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "headrace/cache.h"
#include "headrace/result.h"
#include "headrace/units.h"

namespace headrace::kv_bench {

struct StoreOptions {
  // Placement of the heap, in text form; empty: the memory nearest to this CPU.
  std::string placement;
  // The file of the values, created or overwritten; empty: values are in the heap.
  std::filesystem::path file;
  Bytes cached = 64_MiB;            // copies in memory
  std::size_t value_bytes = 1024;   // maximum, in the file
  std::uint64_t records = 1000000;  // the file has places for four times as many and a million more
};

class Store {
 public:
  // Errors: absent, unsupported, denied, io: the file; absent, invalid: the placement.
  static Result<std::unique_ptr<Store>> open(const StoreOptions& options);
  ~Store();

  // Errors: exhausted: no memory, or no place in the file; io: the file; invalid: the value is too
  // long for it.
  Status set(std::string_view name, std::string_view value);

  // A stored value, or its block, which may be in flight. The value stays valid until the next
  // set().
  struct Found {
    std::string_view value;
    std::optional<Block> block;
  };
  std::optional<Found> get(std::string_view name);
  // The value of a block of get() that is no longer in flight. If the cache had no space for it, it
  // is read now.
  static Result<std::string> value_of(const Block& block);

 private:
  class Inside;
  explicit Store(std::unique_ptr<Inside> inside);
  std::unique_ptr<Inside> inside_;
};

}  // namespace headrace::kv_bench
