// SPDX-License-Identifier: Apache-2.0
// A buffer pool as a database writes its own: a page table in 64 shards with a mutex each, frames
// with a shared latch, a second-chance clock, and write-back of dirty pages when their frame is
// needed, by the thread that needs it. Thread-safe.
//
// A frame under I/O is latched exclusively and keeps its page in the table, so that other threads
// wait for it at the latch.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "benchmarks/cache/stores/source.h"
#include "headrace/units.h"

namespace headrace::cache_bench {

class PagePool {
 public:
  // Reads and writes `source`, whose pages have `page` bytes, a multiple of 4096.
  PagePool(const Source& source, std::uint64_t page, Bytes budget)
      : source_(source), shards_(kShards) {
    const std::uint64_t frames = budget.value / page / kShards;
    for (Shard& shard : shards_) {
      shard.frames = std::vector<Frame>(frames);
      for (Frame& frame : shard.frames) {
        frame.bytes.reset(static_cast<std::byte*>(std::aligned_alloc(4096, page)));
      }
    }
  }

  // Calls use(bytes) with the page latched, for writing or shared. False: an I/O failed.
  template <class Use>
  bool access(std::uint64_t page, bool write, const Use& use) {
    Shard& shard = shards_[page * 0x9E37'79B9'7F4A'7C15 >> 58];
    Frame* frame = find(shard, page);
    if (frame == nullptr) frame = load(shard, page);
    if (frame == nullptr) return false;
    if (write) {
      const std::lock_guard latch(frame->latch);
      use(frame->bytes.get());
      frame->dirty = true;
    } else {
      const std::shared_lock latch(frame->latch);
      use(frame->bytes.get());
    }
    const std::lock_guard lock(shard.mutex);
    --frame->pins;
    return true;
  }
  // Writes all dirty pages. False: an I/O failed. Requires: no other call runs.
  bool flush() {
    bool all = true;
    for (Shard& shard : shards_) {
      for (Frame& frame : shard.frames) {
        if (!std::exchange(frame.dirty, false)) continue;
        all = source_.write(frame.page, frame.bytes.get()) && all;
      }
    }
    return all;
  }
  std::uint64_t misses() const { return misses_.load(); }

 private:
  static constexpr std::size_t kShards = 64;
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};

  struct Free {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };
  struct Frame {
    std::unique_ptr<std::byte, Free> bytes;
    std::uint64_t page = kNone;
    unsigned pins = 0;
    bool used = false;
    bool dirty = false;  // changed under the latch, or while nobody pins the frame
    std::shared_mutex latch;
  };
  struct alignas(64) Shard {
    std::mutex mutex;
    std::unordered_map<std::uint64_t, Frame*> pages;
    std::vector<Frame> frames;
    std::size_t hand = 0;
  };

  Frame* find(Shard& shard, std::uint64_t page) {
    const std::lock_guard lock(shard.mutex);
    const auto found = shard.pages.find(page);
    if (found == shard.pages.end()) return nullptr;
    ++found->second->pins;
    found->second->used = true;
    return found->second;
  }

  // Requires: the shard's mutex is held.
  Frame* victim(Shard& shard) {
    for (std::size_t looks = 3 * shard.frames.size(); looks > 0; --looks) {
      Frame& frame = shard.frames[shard.hand];
      shard.hand = (shard.hand + 1) % shard.frames.size();
      if (frame.pins == 0 && !std::exchange(frame.used, false)) return &frame;
    }
    return nullptr;
  }

  // The frame of the page, pinned. Null: all frames are pinned, or an I/O failed.
  Frame* load(Shard& shard, std::uint64_t page) {
    std::unique_lock lock(shard.mutex);
    for (;;) {
      if (const auto found = shard.pages.find(page); found != shard.pages.end()) {
        ++found->second->pins;
        return found->second;
      }
      Frame* const frame = victim(shard);
      if (frame == nullptr) return nullptr;
      frame->pins = 1;
      const std::unique_lock latch(frame->latch);
      if (std::exchange(frame->dirty, false)) {
        lock.unlock();
        if (!source_.write(frame->page, frame->bytes.get())) return nullptr;
        lock.lock();
        // Meanwhile another thread may have come for the old page, or loaded the new one.
        if (frame->pins > 1 || shard.pages.contains(page)) {
          --frame->pins;
          continue;
        }
      }
      ++misses_;
      shard.pages.erase(frame->page);
      frame->page = page;
      shard.pages[page] = frame;
      lock.unlock();
      return source_.read(page, frame->bytes.get()) ? frame : nullptr;
    }
  }

  const Source& source_;
  std::vector<Shard> shards_;
  std::atomic<std::uint64_t> misses_{0};
};

}  // namespace headrace::cache_bench
