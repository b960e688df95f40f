// SPDX-License-Identifier: Apache-2.0
// The queue of one storage engine and the thread that works it off.
//
// Any thread puts pieces in; the lane's thread alone cuts them into requests, sends those, resumes
// short ones, retries, notices lost ones, and reports. So the state of pieces needs no lock, and
// completions interrupt no other thread. The thread sleeps in the kernel when there is nothing to
// do. Small reads go a shorter way (small_reads.h) and come here if that fails. Thread-safe.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "backend/storage/cutting.h"
#include "backend/storage/queue.h"
#include "backend/storage/storage.h"
#include "core/mutex.h"
#include "core/waiting/backoff.h"
#include "core/waiting/patience.h"
#include "headrace/backend.h"
#include "headrace/file.h"

namespace headrace::storage {

class SmallReads;
class StorageLane;

// How often times are looked at, as a part of the limit: a lost request is found after at most
// 1 + 1/4 of it.
inline constexpr int kLooksPerLimit = 4;

// A piece accepted and what has become of it.
struct AcceptedPiece {
  StorageLane* lane = nullptr;
  std::atomic<std::size_t>* open = nullptr;  // a small read: counts those of its thread
  const File* file = nullptr;
  Completion* completion = nullptr;
  std::uint64_t tag = 0;
  const std::atomic<bool>* cancelled = nullptr;  // Piece::cancelled
  CopyHint hint = CopyHint::automatic;           // for what is bounced
  FileSpan span;
  std::uint64_t next = 0;     // first byte of the file not yet asked for
  std::size_t in_flight = 0;  // requests
  Nanoseconds since{0};       // when the lane took it
  Status outcome;             // the first failure
  bool cut_off() const { return !outcome; }
  // Requires: it has not been reported.
  bool is_cancelled() const { return cancelled != nullptr && cancelled->load(); }
};

// A piece between file and memory, ready for a lane. Requires: the piece was checked.
AcceptedPiece to_accepted(const Piece& piece, Completion& completion, Bytes request);

class StorageLane {
 public:
  // The lane gives `small` the reads that may be; it borrows it. If it `serves` them, what ends of
  // them while nobody waits is reported by its thread. exhausted: not even one thread or the bounce
  // buffers could be had.
  static Result<std::unique_ptr<StorageLane>> open(const StorageOptions& options, SmallReads& small,
                                                   bool serves);
  // Works off what is there (bounded by the options' limit per request) and ends the thread.
  ~StorageLane();
  StorageLane(const StorageLane&) = delete;
  StorageLane& operator=(const StorageLane&) = delete;

  // False: full. Never blocks.
  bool accept(AcceptedPiece&& piece);
  // Looks for pieces that were cancelled.
  void cancel() noexcept;
  // For a piece that was accepted and that the short way ended, or could not do.
  void end(AcceptedPiece& piece, Status outcome);
  void again(AcceptedPiece&& piece);
  Status no_answer(const AcceptedPiece& piece, std::uint64_t offset) const;
  const std::string& note() const { return note_; }

 private:
  // A request and what the lane knows about it.
  struct TrackedRequest : Request {
    AcceptedPiece* piece = nullptr;
    Step step;
    unsigned retries = 0;
    bool parked = false;  // waits for `again`, not in the kernel
    Nanoseconds again{0};
    Nanoseconds since{0};  // when it was first sent
  };

  StorageLane(const StorageOptions& options, SmallReads& small, bool serves);
  Status start();
  Status open_queue();

  // All of these run in the lane's thread.
  void run();
  bool take_inbox();
  void take_cancelled();
  Nanoseconds ask();
  void pump();
  bool send_next(AcceptedPiece& piece);
  void finish(TrackedRequest& request, int result);
  void retry(TrackedRequest& request, int error);
  void advance(TrackedRequest& request, std::uint64_t moved);
  void no_progress(TrackedRequest& request, std::uint64_t reached);
  void retire(TrackedRequest& request, Status outcome);
  void fail_piece(AcceptedPiece& piece, Status outcome);
  void report(AcceptedPiece& piece);
  void look_at_times();
  void look_at(TrackedRequest& request, Nanoseconds now);
  void look_at_waiting(Nanoseconds now);
  Nanoseconds patience() const;

  const StorageOptions options_;
  const Nanoseconds tick_;
  SmallReads& small_;
  const bool serves_;
  std::string note_;             // constant after open()
  std::thread thread_;           // constant after open()
  void* mapped_ = nullptr;       // constant after open(); what bounce_ lies in
  std::byte* bounce_ = nullptr;  // constant after open()

  // Only the lane's thread. All times are by time_, which a pause of the process does not move.
  AttendedTime time_;
  std::vector<AcceptedPiece> pieces_;
  std::vector<AcceptedPiece*> free_pieces_;
  std::vector<AcceptedPiece*> waiting_;  // with bytes not yet asked for, in order of arrival
  std::vector<TrackedRequest> requests_;
  std::vector<TrackedRequest*> free_requests_;
  std::vector<std::byte*> free_bounces_;
  std::vector<Finished> finished_;
  std::size_t parked_ = 0;
  Nanoseconds next_look_{0};
  Nanoseconds last_answer_{0};  // of the device, or when it was first asked
  std::optional<Nanoseconds> ending_since_;
  std::vector<AcceptedPiece> taken_;
  // The pauses between two times that the kernel is asked to end what was cancelled; nothing: all
  // of that has ended.
  std::optional<Backoff> asking_;
  Nanoseconds next_ask_{0};
  bool look_soon_ = false;  // for the small reads

  std::atomic<std::size_t> accepted_{0};  // pieces not yet reported

  Mutex mutex_;
  CondVar opened_cond_;
  // Constant once opened; the lane's thread owns it, others only wake it.
  std::unique_ptr<Queue> queue_;
  std::vector<AcceptedPiece> inbox_ GUARDED_BY(mutex_);
  bool cancelled_ GUARDED_BY(mutex_) = false;  // cancel() was called
  bool asleep_ GUARDED_BY(mutex_) = false;     // a wake() is needed after putting work in
  bool ending_ GUARDED_BY(mutex_) = false;
  std::optional<Status> opened_ GUARDED_BY(mutex_);
};

}  // namespace headrace::storage
