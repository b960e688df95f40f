// SPDX-License-Identifier: Apache-2.0
// Makes files durable that a writable cache has written: at most one fdatasync() of a file at a
// time, which serves all calls whose writes it can hold. Others wait for the next one.
//
// Thread-safe. The waits are bounded by their Patience; fdatasync() itself has no bound.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/mutex.h"
#include "core/waiting/patience.h"
#include "headrace/clock.h"
#include "headrace/file.h"
#include "headrace/result.h"
#include "headrace/waiting.h"

namespace headrace {

class Syncs {
 public:
  using SyncFile = std::function<Status(const File&)>;
  explicit Syncs(Waiting& waiting, SyncFile sync_file = &File::sync)
      : waiting_(waiting), sync_file_(std::move(sync_file)) {}

  // Calls take(add), which calls add(file) for each file written since it was last called; then
  // waits until a sync of each file that has begun after that has ended. `only`: of this object
  // only; null: of all. Errors: that of a file's first sync that failed, until forget();
  // timed_out, cancelled: the wait for another thread's sync has ended.
  using Add = std::function<void(const File&)>;
  Status sync(const std::function<void(const Add&)>& take, const Object* only, Patience& patience,
              const std::function<bool()>* stop);
  // The file is not synced any more. Waits for a sync of it that another thread does. Errors:
  // timed_out.
  Status forget(ObjectId object, Patience& patience);
  // The files that sync() will use, or uses now. Does not wait.
  std::vector<ObjectId> pending() const;

 private:
  struct One {
    const File* file = nullptr;
    bool dirty = false;       // written since the last sync began
    bool running = false;     // a thread syncs it
    std::uint64_t begun = 0;  // the number of its last sync
    std::uint64_t ended = 0;  // the same of the last one that has ended
    std::optional<Error> error = {};
  };
  struct Wanted {
    ObjectId object{};
    std::uint64_t sync = 0;  // the least number of the sync that must have ended
  };

  std::vector<Wanted> wanted(const Object* only) const REQUIRES(mutex_);
  Status sync_one(const Wanted& wanted, Patience& patience, const std::function<bool()>* stop);
  Status wait(std::uint32_t seen, Patience& patience, const std::function<bool()>* stop);

  Waiting& waiting_;
  const SyncFile sync_file_;
  mutable Mutex mutex_;
  std::map<ObjectId, One> files_ GUARDED_BY(mutex_);
  std::uint64_t syncs_ GUARDED_BY(mutex_) = 0;  // of all files
  std::atomic<std::uint32_t> ends_{0};          // threads that wait for a sync sleep on it
};

}  // namespace headrace
