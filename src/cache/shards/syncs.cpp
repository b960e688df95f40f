// SPDX-License-Identifier: Apache-2.0
#include "cache/shards/syncs.h"

#include "core/fail.h"

namespace headrace {
namespace {

// A thread that waits asks `stop` this often.
constexpr Nanoseconds kNap = std::chrono::milliseconds{10};

}  // namespace

// Files are taken under the mutex, so that no call misses what another one has just taken.
Status Syncs::sync(const std::function<void(const Add&)>& take, const Object* only,
                   Patience& patience, const std::function<bool()>* stop) {
  std::vector<Wanted> all;
  {
    const MutexLock lock(mutex_);
    take([this](const File& file) NO_THREAD_SAFETY_ANALYSIS {
      One& one = files_[file.id()];
      one.file = &file;
      one.dirty = true;
    });
    all = wanted(only);
  }
  Status first;
  for (const Wanted& one : all) {
    Status synced = sync_one(one, patience, stop);
    if (!synced && first) first = std::move(synced);
  }
  return first;
}

std::vector<Syncs::Wanted> Syncs::wanted(const Object* only) const {
  std::vector<Wanted> all;
  for (const auto& [id, one] : files_) {
    if (only != nullptr && one.file != only) continue;
    all.push_back({id, one.dirty ? syncs_ + 1 : one.begun});
  }
  return all;
}

Status Syncs::sync_one(const Wanted& wanted, Patience& patience,
                       const std::function<bool()>* stop) {
  for (;;) {
    const std::uint32_t seen = ends_.load();
    const File* file = nullptr;
    {
      const MutexLock lock(mutex_);
      const auto at = files_.find(wanted.object);
      if (at == files_.end()) return {};  // synced, or forgotten
      One& one = at->second;
      if (one.error) return Unexpected(*one.error);
      if (one.ended >= wanted.sync) return {};
      file = one.file;
      if (!one.running) {
        one.running = true;
        one.dirty = false;
        one.begun = ++syncs_;
      } else {
        file = nullptr;
      }
    }
    if (file == nullptr) {
      HEADRACE_TRY_STATUS(wait(seen, patience, stop));
      continue;
    }
    Status synced = sync_file_(*file);
    {
      const MutexLock lock(mutex_);
      One& one = files_.at(wanted.object);  // forget() waits for this sync
      one.running = false;
      one.ended = one.begun;
      if (!synced) one.error = std::move(synced).error();  // no copy: it cannot fail
      if (!one.error && !one.dirty) files_.erase(wanted.object);
    }
    ends_.fetch_add(1);
    waiting_.wake_all(ends_);
  }
}

Status Syncs::wait(std::uint32_t seen, Patience& patience, const std::function<bool()>* stop) {
  if (stop != nullptr && (*stop)()) {
    return fail(ErrorCode::cancelled, "the wait for another thread's sync was stopped");
  }
  if (patience.over()) {
    return fail(ErrorCode::timed_out,
                "another thread's sync of the file has not ended in time; call it again");
  }
  patience.sleep(ends_, seen, kNap);
  return {};
}

Status Syncs::forget(ObjectId object, Patience& patience) {
  for (;;) {
    const std::uint32_t seen = ends_.load();
    {
      const MutexLock lock(mutex_);
      const auto at = files_.find(object);
      if (at == files_.end()) return {};
      if (!at->second.running) {
        files_.erase(at);
        return {};
      }
    }
    HEADRACE_TRY_STATUS(wait(seen, patience, nullptr));
  }
}

std::vector<ObjectId> Syncs::pending() const {
  const MutexLock lock(mutex_);
  std::vector<ObjectId> objects;
  for (const auto& [id, one] : files_) objects.push_back(id);
  return objects;
}

}  // namespace headrace
