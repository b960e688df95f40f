// SPDX-License-Identifier: Apache-2.0
// The shared core of Store, Match, Load and Stored: the parts of a store, which use each other
// through it.
//
//   jobs       continue operations; workers run them
//   table      which block has a copy in which slot; its lock, and the order of all locks (table.h)
//   tiers      demotion and promotion
//   arrivals   stores
//   remover    removals, and headers to overwrite
//   flusher    flush(), and writing while no load runs
//   queue      which layers are read now
//   coalescer  lets loads of a block read it once
//   loads      loads
//   streams    loads and stores that wait for a stream
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/fork.h"
#include "headrace/kvcache/store.h"
#include "kvcache/arrivals.h"
#include "kvcache/coalescer.h"
#include "kvcache/flusher.h"
#include "kvcache/loads.h"
#include "kvcache/remover.h"
#include "kvcache/state/jobs.h"
#include "kvcache/state/load_queue.h"
#include "kvcache/state/stream_waiter.h"
#include "kvcache/state/table.h"
#include "kvcache/state/user_memory.h"
#include "kvcache/tiers.h"

namespace headrace::kvcache {

inline constexpr const char* kTheStore = "the KV store";

class StoreCore {
 public:
  static Result<std::unique_ptr<StoreCore>> open(Mover& mover, StoreOptions options);
  ~StoreCore();

  // Cancels and refuses operations, waits for copies in flight, and releases the tiers; matches
  // then pin nothing. After a timeout or a stop the next call continues.
  Status close(Nanoseconds timeout, const Stop& stop);
  bool closed() const { return closed_.load(); }
  // Errors: cancelled: the store is closed or closing.
  Status check_open() const;

  const Geometry& geometry() const { return options.geometry; }
  Match match(std::span<const Key> keys, bool all);
  void release(const Match& match);
  std::vector<std::optional<Bytes>> sizes(std::span<const Key> keys);
  void touch(std::span<const Key> keys);
  std::vector<Key> take_dropped();
  StoreStats stats();

  // Sleeps until `ended` returns true, and runs jobs meanwhile. `word` changes after `ended` has
  // become true.
  Status wait(const std::atomic<std::uint32_t>& word, const std::function<bool()>& ended,
              Nanoseconds timeout, const char* what, Nanoseconds looking = {});
  void poll();
  // Memory through which blocks pass for their checksums. Errors: those of allocate().
  Result<std::shared_ptr<const Object>> passage(Bytes bytes) const;

  Mover& mover;
  const StoreOptions options;
  const Origin origin;

  JobQueue jobs;
  BlockTable table{mover, options, remover};
  Tiers tiers{*this};
  Arrivals arrivals{*this};
  Remover remover{*this};
  Flusher flusher{*this};
  LoadQueue queue{options.load_ahead};
  Coalescer coalescer{*this};
  Loads loads{*this};
  StreamWaiter streams{mover, jobs, closed_, [this](Parked& parked) { go_on(parked); }};

 private:
  StoreCore(Mover& with, StoreOptions wanted);
  class Closing;
  Status close(Closing& closing);
  // Does work that has become due. Returns the time until the next.
  Nanoseconds do_due_work();
  // Continues an operation that waited for a stream.
  void go_on(Parked& parked) noexcept;

  std::atomic<bool> closed_{false};               // set with BlockTable::closing, under its lock
  std::atomic<std::uint32_t> someone_closes_{0};  // 1: one thread is closing; others wait for it
};

}  // namespace headrace::kvcache
