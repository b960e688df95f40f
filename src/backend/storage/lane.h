// SPDX-License-Identifier: Apache-2.0
// The queue of one storage engine and the thread that processes it.
//
// Any thread puts pieces in. Only the lane's thread cuts them into requests, sends and resumes
// these, retries, notices lost requests, and reports. Therefore the state of pieces needs no lock,
// and completions interrupt no other thread. The thread sleeps in the kernel when it has no work.
// Small reads take a shorter way (small_reads.h) and come here if it fails. Thread-safe.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "backend/storage/queue.h"
#include "backend/storage/request_cutting.h"
#include "backend/storage/storage.h"
#include "core/mutex.h"
#include "core/waiting/backoff.h"
#include "core/waiting/patience.h"
#include "headrace/backend.h"
#include "headrace/file.h"

namespace headrace::storage {

class SmallReads;
class StorageLane;

// Checks of the time per limit: a lost request is found after at most 1 + 1/4 of the limit.
inline constexpr int kLooksPerLimit = 4;

// An accepted piece and its state.
struct AcceptedPiece {
  StorageLane* lane = nullptr;
  std::atomic<std::size_t>* open = nullptr;  // a small read: the count of its thread's reads
  const File* file = nullptr;
  Completion* completion = nullptr;
  std::uint64_t tag = 0;
  const std::atomic<bool>* cancelled = nullptr;  // Piece::cancelled
  CopyHint hint = CopyHint::automatic;           // for bounced bytes
  FileSpan span;
  std::uint64_t next = 0;     // first byte of the file not yet requested
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
  // Gives `small`, which it borrows, its small reads. If the lane `serves` them, its thread reports
  // those that end while nobody waits. Errors: exhausted: no thread, or no memory for the bounce
  // buffers.
  static Result<std::unique_ptr<StorageLane>> open(const StorageOptions& options, SmallReads& small,
                                                   bool serves);
  // Finishes all accepted work (the options' limit bounds each request) and ends the thread.
  ~StorageLane();
  StorageLane(const StorageLane&) = delete;
  StorageLane& operator=(const StorageLane&) = delete;

  // False: full. Never blocks.
  bool accept(AcceptedPiece&& piece);
  // Looks for cancelled pieces.
  void cancel() noexcept;
  // For an accepted piece that the short way has ended (end) or could not read (again).
  void end(AcceptedPiece& piece, Status outcome);
  void again(AcceptedPiece&& piece);
  Status no_answer(const AcceptedPiece& piece, std::uint64_t offset) const;
  const std::string& note() const { return note_; }

 private:
  // A request and its state in the lane.
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

  // These all run in the lane's thread.
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
  void* mapped_ = nullptr;       // constant after open(); contains bounce_
  std::byte* bounce_ = nullptr;  // constant after open()

  // For the lane's thread only. All times are by time_, which leaves out pauses of the process.
  AttendedTime time_;
  std::vector<AcceptedPiece> pieces_;
  std::vector<AcceptedPiece*> free_pieces_;
  std::vector<AcceptedPiece*> waiting_;  // with bytes not yet requested, in order of arrival
  std::vector<TrackedRequest> requests_;
  std::vector<TrackedRequest*> free_requests_;
  std::vector<std::byte*> free_bounces_;
  std::vector<Finished> finished_;
  std::size_t parked_ = 0;
  Nanoseconds next_look_{0};
  Nanoseconds last_answer_{0};  // the device's last answer, or its first request
  std::optional<Nanoseconds> ending_since_;
  std::vector<AcceptedPiece> taken_;
  // The pauses between requests to the kernel to end cancelled work; empty: all of it has ended.
  std::optional<Backoff> asking_;
  Nanoseconds next_ask_{0};
  bool look_soon_ = false;  // for the small reads

  std::atomic<std::size_t> accepted_{0};  // pieces not yet reported

  Mutex mutex_;
  CondVar opened_cond_;
  // Constant once opened. The lane's thread owns it; other threads only wake it.
  std::unique_ptr<Queue> queue_;
  std::vector<AcceptedPiece> inbox_ GUARDED_BY(mutex_);
  bool cancelled_ GUARDED_BY(mutex_) = false;  // cancel() was called
  bool asleep_ GUARDED_BY(mutex_) = false;     // wake() is needed after new work
  bool ending_ GUARDED_BY(mutex_) = false;
  std::optional<Status> opened_ GUARDED_BY(mutex_);
};

}  // namespace headrace::storage
