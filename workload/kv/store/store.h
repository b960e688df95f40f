// SPDX-License-Identifier: Apache-2.0
// Values by name on the library itself: in a heap, or in a file whose most used parts a cache keeps
// in memory.
//
// It is a measuring object, not a database: nothing outlives the process. Values in the file are
// written through the page cache and read past it, so that what is not in the cache comes from the
// device. Single-thread; what is on its way ends in threads of the library.
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
  // The heap's, as people write a placement; empty: the memory nearest to this CPU.
  std::string placement;
  // Where values lie; empty: in the heap. The file is made, and overwritten if it is there.
  std::filesystem::path file;
  Bytes cached = 64_MiB;           // copies of them in memory
  std::size_t value_bytes = 1024;  // at most, in the file
  std::uint64_t records =
      1000000;  // four times as many and a million more have a place in the file
};

class Store {
 public:
  // absent, unsupported, denied, io: of the file; absent, invalid: of the placement.
  static Result<std::unique_ptr<Store>> open(const StoreOptions& options);
  ~Store();

  // exhausted: no memory, or no place in the file; io: of the file; invalid: a value too long for
  // it.
  Status set(std::string_view name, std::string_view value);

  // What is stored under a name, or its block, which may be on its way. The first stays until the
  // next set().
  struct Found {
    std::string_view value;
    std::optional<Block> block;
  };
  std::optional<Found> get(std::string_view name);
  // The value of a block of get() that is no longer on its way; where the cache had no place for it
  // it is read now.
  static Result<std::string> value_of(const Block& block);

 private:
  class Inside;
  explicit Store(std::unique_ptr<Inside> inside);
  std::unique_ptr<Inside> inside_;
};

}  // namespace headrace::kv_bench
