// SPDX-License-Identifier: Apache-2.0
#include "backend/storage/user_reads.h"

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "core/check.h"
#include "core/fail.h"
#include "core/thread.h"
#include "headrace/storage/user_source.h"

namespace headrace {

UserSource::UserSource(Bytes size, NodeId node, std::string version, Bytes chunk)
    : Object(size, node, nullptr),
      version_(std::move(version)),
      chunk_(std::min(chunk, kMostBytes)) {
  CHECK(size <= kMostBytes);
  CHECK(chunk > Bytes{0});
  user_source_ = this;
}

UserSource::~UserSource() = default;

Status UserSource::read_whole(std::uint64_t offset, std::span<std::byte> to) noexcept try {
  HEADRACE_TRY(const Bytes got, read(offset, to));
  if (got.value > to.size()) {
    return fail(
        ErrorCode::io,
        "a user source returned {} for {} bytes at offset {}; return how many bytes it wrote",
        got.value, to.size(), offset);
  }
  if (got.value != to.size()) {
    return fail(ErrorCode::io, "a user source gave {} of {} bytes at offset {}; is it truncated?",
                got.value, to.size(), offset);
  }
  HEADRACE_TRY(const std::string now, version());
  if (now != version_) {
    return fail(ErrorCode::io,
                "a user source has changed from version {} to {}; make a new one for its new bytes",
                version_, now);
  }
  return {};
} catch (const std::bad_alloc&) {
  return out_of_memory();
} catch (const std::exception& error) {
  return fail(ErrorCode::io, "a user source raised an exception: {}", error.what());
} catch (...) {
  return fail(ErrorCode::io, "a user source raised an exception of an unknown type");
}

namespace storage {
namespace {

// The longest sleep of an idle worker. Work wakes it; the bound only guards against a lost
// notification.
constexpr Nanoseconds kIdleReader = std::chrono::seconds{10};

Status read(const Piece& piece) {
  if (piece.cancelled != nullptr && piece.cancelled->load()) {
    return fail(ErrorCode::cancelled, "the copy was cancelled");
  }
  return piece.from.object->user_source()->read_whole(piece.from.offset,
                                                      {piece.to.memory(), piece.to.length.value});
}

}  // namespace

// accept() must not run out of memory.
UserReads::UserReads(std::size_t threads, std::size_t most) : most_threads_(threads), most_(most) {
  const MutexLock lock(mutex_);
  workers_.reserve(most_threads_);
  pending_.reserve(most_);
}

UserReads::~UserReads() {
  std::vector<std::thread> workers;
  {
    const MutexLock lock(mutex_);
    ending_ = true;
    workers.swap(workers_);
  }
  work_.notify_all();
  for (std::thread& worker : workers) join(worker);
}

bool UserReads::accept(const Piece& piece, Completion& completion) {
  Status started;
  {
    const MutexLock lock(mutex_);
    if (pending_.size() >= most_) return false;
    pending_.push_back({piece, &completion});
    if (idle_ < pending_.size() && workers_.size() < most_threads_) {
      auto worker = start_thread("headrace-source", [this] { work(); });
      if (worker) {
        workers_.push_back(*std::move(worker));
      } else if (workers_.empty()) {  // otherwise the piece waits for an existing one
        pending_.pop_back();
        started = Unexpected(std::move(worker).error());
      }
    }
  }
  if (started) {
    work_.notify_one();
  } else {
    completion.complete(piece.tag, std::move(started));
  }
  return true;
}

void UserReads::work() {
  MutexLock lock(mutex_);
  while (true) {
    if (pending_.empty()) {
      if (ending_) return;
      ++idle_;
      work_.wait_for(mutex_, kIdleReader);
      --idle_;
      continue;
    }
    const Read next = pending_.front();
    pending_.erase(pending_.begin());
    lock.unlock();
    next.completion->complete(next.piece.tag, read(next.piece));
    lock.lock();
  }
}

}  // namespace storage
}  // namespace headrace
