// SPDX-License-Identifier: Apache-2.0
// The lower bound: no cache, but an array of pointers to copies that all exist.
//
// A block without a copy at construction is copied over the oldest later copy, which nothing pins:
// this costs the copy and nothing else. Correct only while no two threads miss at once, so each
// thread copies to a place of its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "benchmarks/cache/stores/store.h"
#include "headrace/units.h"

namespace headrace::cache_bench {

class ChaseStore {
 public:
  class Pin {
   public:
    Pin() = default;
    Pin(const std::byte* bytes, bool ready) : bytes_(bytes), ready_(ready) {}
    const std::byte* bytes() const { return bytes_; }
    bool ready() const { return ready_; }

   private:
    const std::byte* bytes_ = nullptr;
    bool ready_ = false;
  };

  static Result<std::unique_ptr<ChaseStore>> make(const Source& source, Bytes budget) {
    return std::make_unique<ChaseStore>(source, budget);
  }
  ChaseStore(const Source& source, Bytes budget) : source_(source), copies_(source.blocks()) {
    std::uint64_t used = 0;
    for (std::uint64_t block = 0; block < source.blocks(); ++block) {
      used += source.place(block).length;
      if (used > budget.value) break;
      copies_[block] = read_copy(source, block);
    }
  }

  Pin access(std::uint64_t block) {
    const std::byte* copy = copies_[block].get();
    return copy != nullptr ? Pin{copy, true} : miss(block);
  }
  std::uint64_t misses() const { return misses_.load(); }

 private:
  Pin miss(std::uint64_t block) {
    thread_local std::vector<std::byte> place;
    misses_.fetch_add(1);
    place.resize(source_.place(block).length);
    if (!source_.read(block, place.data())) return {};
    return {place.data(), false};
  }

  const Source& source_;
  std::vector<Held> copies_;
  std::atomic<std::uint64_t> misses_ = 0;
};

static_assert(Store<ChaseStore>);

}  // namespace headrace::cache_bench
