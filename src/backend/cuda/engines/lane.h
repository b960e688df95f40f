// SPDX-License-Identifier: Apache-2.0
// One GPU engine: its streams, and the thread that handles finished copies.
//
// The memory on both sides of a piece decides its way:
//   direct    the engine reaches both sides: given to a stream inside accept()
//   pageable  the engine reaches a side by page tables of the CPUs, or no slot can be allocated:
//             given to a stream by the lane's thread, since the driver may block
//   staged    a side is other host memory: in parts, or together with other small pieces, through
//             slots of pinned memory
//   filed     a side is a file: as staged, but the storage backend fills or empties the slots,
//             unless the page cache has the bytes
//
// flights.h has what becomes of the parts in streams. The lane's thread does the rest: host copies,
// reports, and a periodic look at the streams, which also finds out whether the GPU is still there.
// Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backend/cuda/engines/crew.h"
#include "backend/cuda/engines/engines.h"
#include "backend/cuda/engines/flights.h"
#include "core/mutex.h"
#include "core/waiting/patience.h"
#include "headrace/backend.h"
#include "headrace/buffer.h"
#include "headrace/file.h"

namespace headrace::cuda {

// Pinned memory for one part, or for several small pieces that waited together. Engines copy
// neighbouring pieces in it as one.
struct Slot {
  std::unique_ptr<MemoryRange> memory;
  std::uint64_t used = 0;  // bytes up to the end of the last task
  std::size_t open = 0;    // tasks not ended
  Task part;               // of a piece that is too large for it
};

class Lane {
 public:
  // Errors as open_cuda(). open() only queries the driver. The context, the streams, the gathering
  // kernel and the thread are made for the first piece.
  static Result<std::unique_ptr<Lane>> open(const Machine& machine, const Engine& engine,
                                            const CudaOptions& options);
  // Waits until nothing is in flight, and 100 ms for callbacks of copies that looks have ended.
  // Then it ends the thread. Its own limits and storage's bound the wait, except for copies that
  // the driver makes inside its call (Way::pageable).
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  EngineId engine() const { return engine_; }
  const std::string& note() const { return note_; }
  // The parts of the note that the first piece could not set up, and the reason; empty: none.
  std::string degraded() const;
  // Whether the engine can copy the piece at all. Requires: check_piece().
  Status check(const Piece& piece) const;
  // Accepts the first n pieces. Errors: the GPU is lost or hung; exhausted: no memory on it for a
  // context, or no thread.
  Result<std::size_t> accept(std::span<const Piece> pieces, Completion& completion);
  // As Backend::list().
  std::size_t list(std::span<const MovePair> pairs, Bytes most);
  // As Backend::look().
  Backend::Look look(Nanoseconds most);

 private:
  class Stored;
  struct News;

  Lane(const Machine& machine, const Engine& engine, const CudaOptions& options,
       const Driver& driver, const Device& device, const Flights::Means& means);
  Status begin() EXCLUDES(beginning_);
  Status start();
  void drop_streams();
  AcceptedPiece* take_place(const Piece& piece, Completion& completion, MemoryRanges& ranges)
      EXCLUDES(mutex_);
  Way way_of(const Piece& piece, MemoryRanges& ranges) const;
  Direction direction_of(const Piece& piece) const;
  bool may_gather(const AcceptedPiece& piece, MemoryRanges& ranges) const;
  // Lets this GPU and the other GPU of a copy reach each other's memory, once.
  void meet(const Piece& piece) noexcept EXCLUDES(beginning_);
  std::optional<EngineId> ssd_of(const Extent& extent) const;

  // These all run in the lane's thread.
  void run();
  News wait_for_news();
  bool busy() EXCLUDES(mutex_);
  void settle(const News& news);
  void stream_ended(Task& task);
  void take_waiting();
  // Begins as much of the piece as fits in the rest of the slot.
  void begin(Task& task, AcceptedPiece& piece, Slot& slot);
  // Several threads make large copies between slots and memory, and from the page cache.
  void give_to_crew(Task& task);
  void work(Task& task) noexcept;  // in one of those threads
  void offer_to_storage();
  void end_task(Task& task);
  void report(AcceptedPiece& piece) EXCLUDES(mutex_);
  void look_at_streams();
  void judge(Nanoseconds silent, Nanoseconds of_engines);
  void lose(const Error& why);
  void fail_waiting(const Error& why);
  void make_slots();

  // Constant after open().
  const Machine machine_;
  const EngineId engine_;
  const NodeId home_;
  const CudaOptions options_;
  const std::string name_;
  const NodeId host_;  // the node of the slots
  const Driver& driver_;
  const CUdevice device_;
  const bool page_tables_;
  const std::string note_;
  const std::shared_ptr<Mailbox> mailbox_ = std::make_shared<Mailbox>();
  const std::unique_ptr<Stored> stored_;

  // Constant after begin(), like all members below that say so.
  Mutex beginning_;
  std::atomic<bool> begun_{false};
  std::vector<NodeId> met_ GUARDED_BY(beginning_);  // GPUs that have been connected to this one
  std::shared_ptr<const Context> context_;
  Flights flights_;
  std::thread thread_;
  std::unique_ptr<Crew> crew_;      // made by the lane's thread
  std::atomic<bool> cached_{true};  // the page cache can be asked for parts of files

  Mutex mutex_;
  std::vector<std::unique_ptr<AcceptedPiece>> pieces_;  // constant after begin()
  std::vector<AcceptedPiece*> free_pieces_ GUARDED_BY(mutex_);

  // For the lane's thread only. It has no caller to report an allocation failure to, so start()
  // reserves the largest size of each list.
  std::unique_ptr<Buffer> ring_;
  std::optional<Nanoseconds> ring_tried_;
  std::string no_ring_;  // the reason why there is none
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<Slot*> free_slots_;
  std::vector<AcceptedPiece*> waiting_;  // with parts not yet cut, in order of arrival
  std::vector<Task*> to_store_;          // not yet accepted by the storage backend
  std::array<std::vector<Task*>, kDirections> ready_;
  // The lane whose reports this thread is making. Pieces accepted inside a report wait for the
  // remaining reports, which may bring their neighbours: each report ends a piece of one merged
  // copy, and a mover refills piece by piece.
  static thread_local const Lane* settling_;
  AttendedTime time_;
  Nanoseconds looked_{0};
  std::array<Nanoseconds, kDirections> last_answer_{};
  bool hung_ = false;
};

}  // namespace headrace::cuda
