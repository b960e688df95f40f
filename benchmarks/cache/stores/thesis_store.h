// SPDX-License-Identifier: Apache-2.0
// The cache of Fürst's thesis (TU Dresden 2024), as described there. Each node has a map by source
// pointer under a reader-writer lock. An access copies a CacheData. Its copies share three atomics:
// a count, the pointer to the cached bytes and the pointer to the copy operations. A thread that
// needs the bytes waits for the last two.
//
// The source pointers of a file are those of its mapping, which is read only after a failed copy.
// Copies are made by pread, as in the other stores.
//
// Kept:
// - A policy is asked at each access.
// - The sentinel; the first waiting thread ends the copy; a failed copy is replaced by its source.
// - No order of replacement: without space, all unused blocks are dropped.
//
// Not kept: the DSA. Instead, submission copies with the core.
#pragma once

#include <sched.h>
#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <utility>
#include <vector>

#include "benchmarks/cache/stores/store.h"
#include "core/fail.h"
#include "headrace/file.h"
#include "headrace/units.h"

namespace headrace::cache_bench {

class ThesisStore {
  // The software path of a copy engine's handle; done when it is submitted.
  struct Handler {
    bool good = false;
  };
  using Handlers = std::vector<Handler>;

  // Shared by the copies of a CacheData; exists once its entry is in the map.
  struct Shared {
    std::atomic<std::int32_t> active = 1;
    std::atomic<std::byte*> cache = nullptr;
    std::atomic<Handlers*> handlers = nullptr;
    std::byte* incomplete = nullptr;  // written before `handlers`, which publishes it
  };

  class CacheData {
   public:
    CacheData(std::byte* source, std::uint64_t size, std::atomic<std::uint64_t>* used)
        : source_(source), size_(size), used_(used), shared_(new Shared) {}
    CacheData(const CacheData& other)
        : source_(other.source_), size_(other.size_), used_(other.used_), shared_(other.shared_) {
      shared_->active.fetch_add(1);
    }
    CacheData& operator=(const CacheData&) = delete;
    ~CacheData() {
      if (shared_->active.fetch_sub(1) != 1) return;
      wait();  // the copy may be running
      if (shared_->incomplete != nullptr) {
        std::free(shared_->incomplete);
        used_->fetch_sub(size_);
      }
      delete shared_;
    }

    std::uint64_t size() const { return size_; }
    std::int32_t references() const { return shared_->active.load(); }
    std::byte* location() const { return shared_->cache.load(); }
    void wait() const {
      if (shared_->cache.load() != nullptr) return;
      shared_->handlers.wait(nullptr);
      Handlers* const mine = shared_->handlers.exchange(taken());
      if (mine == taken()) {
        shared_->cache.wait(nullptr);
        return;
      }
      bool good = true;
      for (const Handler& handler : *mine) good = good && handler.good;
      shared_->cache.store(good ? shared_->incomplete : source_);
      shared_->cache.notify_all();
      delete mine;
    }
    void submitted(std::byte* to, Handlers* handlers) const {
      shared_->incomplete = to;
      shared_->handlers.store(handlers);
      shared_->handlers.notify_all();
    }
    std::byte* source() const { return source_; }

   private:
    // The thesis' 0xFFFF...: a thread is waiting for the handlers.
    static Handlers* taken() { return reinterpret_cast<Handlers*>(~std::uintptr_t{0}); }

    std::byte* const source_;
    const std::uint64_t size_;
    std::atomic<std::uint64_t>* const used_;
    Shared* const shared_;
  };

 public:
  class Pin {
   public:
    Pin() = default;
    Pin(std::unique_ptr<CacheData> data, bool ready) : data_(std::move(data)), ready_(ready) {}
    const std::byte* bytes() const {
      data_->wait();
      return data_->location();
    }
    bool ready() const { return ready_; }

   private:
    std::unique_ptr<CacheData> data_;
    bool ready_ = false;
  };

  static Result<std::unique_ptr<ThesisStore>> make(const Source& source, Bytes budget) {
    if (source.memory(0) != nullptr) {
      return std::make_unique<ThesisStore>(source, source.memory(0), budget);
    }
    const auto& file = static_cast<const File&>(source.object());
    const std::size_t length = file.size().value;
    void* const begin = ::mmap(nullptr, length, PROT_READ, MAP_SHARED, file.buffered_fd(), 0);
    if (begin == MAP_FAILED) return fail_errno(errno, "cannot map " + file.quoted());
    return std::make_unique<ThesisStore>(source, static_cast<std::byte*>(begin), budget, length);
  }
  ThesisStore(const Source& source, const std::byte* begin, Bytes budget, std::size_t mapped = 0)
      : source_(source), begin_(begin), mapped_(mapped), budget_(budget.value) {
    nodes_.try_emplace(0);
  }
  ~ThesisStore() {
    if (mapped_ > 0) (void)::munmap(const_cast<std::byte*>(begin_), mapped_);
  }
  ThesisStore(const ThesisStore&) = delete;
  ThesisStore& operator=(const ThesisStore&) = delete;

  Pin access(std::uint64_t block) {
    const Place at = source_.place(block);
    auto* const pointer = const_cast<std::byte*>(begin_ + at.offset);
    const std::uint64_t size = at.length;
    unsigned node = 0;
    (void)::getcpu(nullptr, &node);
    Node& place = nodes_.at(placement_(static_cast<int>(node), 1, size));
    {
      const std::shared_lock lock(place.mutex);
      if (const auto found = place.entries.find(pointer);
          found != place.entries.end() && found->second.size() == size) {
        const bool ready = found->second.location() != nullptr;  // else its copy is in flight
        return {std::make_unique<CacheData>(found->second), ready};
      }
    }
    return miss(place, block, pointer, size);
  }
  std::uint64_t misses() const { return misses_.load(); }

 private:
  struct Node {
    std::shared_mutex mutex;
    std::map<std::byte*, CacheData> entries;
  };

  Pin miss(Node& place, std::uint64_t block, std::byte* pointer, std::uint64_t size) {
    misses_.fetch_add(1);
    std::unique_ptr<CacheData> data;
    {
      const std::unique_lock lock(place.mutex);
      const auto [entry, made] = place.entries.try_emplace(pointer, pointer, size, &used_);
      data = std::make_unique<CacheData>(entry->second);
      if (!made) return {std::move(data), false};
    }
    submit(place, block, *data);
    return {std::move(data), false};
  }

  // Copies, or reports that the copy failed; then the source is read.
  void submit(Node& place, std::uint64_t block, const CacheData& data) {
    if (!take(data.size())) {
      flush(place);
      if (!take(data.size())) return give_up(place, data, nullptr);
    }
    std::byte* const to = new_bytes(source_, block);
    if (!source_.read(block, to)) return give_up(place, data, to);
    data.submitted(to, new Handlers{{.good = true}});
  }
  static void give_up(Node& place, const CacheData& data, std::byte* to) {
    data.submitted(to, new Handlers{{.good = false}});
    const std::unique_lock lock(place.mutex);
    place.entries.erase(data.source());  // it would fail for ever
  }
  bool take(std::uint64_t size) {
    if (used_.fetch_add(size) + size <= budget_) return true;
    used_.fetch_sub(size);
    return false;
  }
  static void flush(Node& place) {
    const std::unique_lock lock(place.mutex);
    std::erase_if(place.entries, [](const auto& entry) { return entry.second.references() == 1; });
  }

  const Source& source_;
  const std::byte* const begin_;  // of the source: in memory, or mapped
  const std::size_t mapped_;      // bytes
  const std::uint64_t budget_;
  const std::function<int(int, int, std::uint64_t)> placement_ = [](int, int, std::uint64_t) {
    return 0;
  };
  std::map<int, Node> nodes_;
  std::atomic<std::uint64_t> used_ = 0;
  std::atomic<std::uint64_t> misses_ = 0;
};

static_assert(Store<ThesisStore>);

}  // namespace headrace::cache_bench
