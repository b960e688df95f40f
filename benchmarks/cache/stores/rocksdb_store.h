// SPDX-License-Identifier: Apache-2.0
// RocksDB's HyperClockCache, used like its block cache: keys of 16 bytes, its own shards and order,
// values allocated by the reader.
//
// A miss reads first and inserts afterwards, since the cache cannot reserve space. If it refuses a
// block among pins, the reader keeps its copy.
#pragma once

#include <rocksdb/cache.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utility>

#include "benchmarks/cache/stores/store.h"
#include "headrace/units.h"

namespace headrace::cache_bench {

class RocksdbStore {
 public:
  class Pin {
   public:
    Pin() = default;
    Pin(rocksdb::Cache* cache, rocksdb::Cache::Handle* handle, bool ready)
        : cache_(cache), handle_(handle), ready_(ready) {}
    explicit Pin(Held uncached) : uncached_(std::move(uncached)) {}
    Pin(Pin&& other) noexcept
        : cache_(std::exchange(other.cache_, nullptr)),
          handle_(std::exchange(other.handle_, nullptr)),
          uncached_(std::move(other.uncached_)),
          ready_(other.ready_) {}
    Pin& operator=(Pin&& other) noexcept {
      std::swap(cache_, other.cache_);
      std::swap(handle_, other.handle_);
      std::swap(uncached_, other.uncached_);
      std::swap(ready_, other.ready_);
      other.release();
      return *this;
    }
    ~Pin() { release(); }
    const std::byte* bytes() const {
      if (handle_ == nullptr) return uncached_.get();
      return static_cast<const std::byte*>(cache_->Value(handle_));
    }
    bool ready() const { return ready_; }

   private:
    void release() {
      if (handle_ != nullptr) cache_->Release(handle_);
      handle_ = nullptr;
      uncached_.reset();
    }
    rocksdb::Cache* cache_ = nullptr;
    rocksdb::Cache::Handle* handle_ = nullptr;
    Held uncached_;
    bool ready_ = false;
  };

  static Result<std::unique_ptr<RocksdbStore>> make(const Source& source, Bytes budget) {
    return std::make_unique<RocksdbStore>(source, budget);
  }
  RocksdbStore(const Source& source, Bytes budget)
      : source_(source),
        cache_(rocksdb::HyperClockCacheOptions(budget.value, mean_length(source), -1, true, nullptr,
                                               rocksdb::kDontChargeCacheMetadata)
                   .MakeSharedCache()) {}

  Pin access(std::uint64_t block) {
    const Key key = key_of(block);
    rocksdb::Cache::Handle* const found = cache_->Lookup(slice(key));
    return found != nullptr ? Pin{cache_.get(), found, true} : miss(block, key);
  }
  std::uint64_t misses() const { return misses_.load(); }

 private:
  using Key = std::array<std::uint64_t, 2>;

  // RocksDB's own keys are a file's identity and an offset, well mixed.
  static Key key_of(std::uint64_t block) { return {word_at(block * 8), block}; }
  static rocksdb::Slice slice(const Key& key) {
    return {reinterpret_cast<const char*>(key.data()), sizeof key};
  }
  static std::size_t mean_length(const Source& source) {
    std::uint64_t sum = 0;
    for (std::uint64_t block = 0; block < source.blocks(); ++block) {
      sum += source.place(block).length;
    }
    return sum / source.blocks();
  }

  Pin miss(std::uint64_t block, const Key& key) {
    misses_.fetch_add(1);
    std::byte* const bytes = new_bytes(source_, block);
    if (bytes == nullptr || !source_.read(block, bytes)) {
      std::free(bytes);
      return {};
    }
    rocksdb::Cache::Handle* handle = nullptr;
    const auto free_value = [](const rocksdb::Slice&, void* value) { std::free(value); };
    const rocksdb::Status inserted =
        cache_->Insert(slice(key), bytes, source_.place(block).length, free_value, &handle);
    if (inserted.ok()) return {cache_.get(), handle, false};
    return Pin{Held(bytes, Free{})};
  }

  const Source& source_;
  const std::shared_ptr<rocksdb::Cache> cache_;
  std::atomic<std::uint64_t> misses_ = 0;
};

static_assert(Store<RocksdbStore>);

}  // namespace headrace::cache_bench
