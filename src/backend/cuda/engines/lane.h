// SPDX-License-Identifier: Apache-2.0
// One GPU engine: its streams, and the thread that hears what they have done.
//
// What both sides of a piece are decides its way:
//   direct    both in memory that the engine reaches: given to a stream inside accept()
//   pageable  a side in other memory that the engine reaches by page tables of the CPUs (or no slot
//             is to be had): given to a stream by the lane's thread, since the driver may block
//   staged    a side in other memory of the host: in parts, or with other small pieces, through
//             slots of pinned memory
//   filed     a side in a file: the same, and the storage backend fills or empties the slots,
//   unless
//             the page cache has the bytes
// A task is what one stream does at once: a piece, or a part of one that has a slot for itself.
// Tasks given to a stream together are a group. The driver calls back when a group is done; that
// only notes the group and wakes the lane's thread, which does all the rest: host copies, reports,
// and once in a while a look at the streams, which ends what is done where callbacks are held up,
// and tells whether the GPU is still there. Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "backend/cuda/engines/copy_stream.h"
#include "backend/cuda/engines/crew.h"
#include "backend/cuda/engines/engines.h"
#include "backend/cuda/engines/gathering.h"
#include "core/mutex.h"
#include "core/waiting/patience.h"
#include "headrace/backend.h"
#include "headrace/buffer.h"
#include "headrace/file.h"

namespace headrace::cuda {

enum class Way : std::uint8_t { direct, pageable, staged, filed };
struct AcceptedPiece;
struct Slot;

// A part of a piece on a stream; with a slot it goes through host memory.
struct Task {
  AcceptedPiece* piece = nullptr;
  Direction direction = Direction::across;
  StreamCopy copy;
  Slot* slot = nullptr;  // nullptr: direct
  std::uint64_t slot_offset = 0;
  std::uint64_t offset = 0;  // of the part in the piece
  Bytes length;
  Status outcome;
  CUresult result = CUDA_SUCCESS;
  Task* next = nullptr;
};

struct AcceptedPiece {
  Piece piece;
  Completion* completion = nullptr;
  Way way = Way::direct;
  Direction direction = Direction::across;
  std::uint64_t cut = 0;  // bytes that are or were in tasks
  std::size_t open = 0;   // tasks not ended
  Status outcome;         // the first failure
  Task own;               // of a piece that is copied whole
};

// Pinned memory through which a part goes, or several small pieces that waited together: where they
// are neighbours, engines copy them as one.
struct Slot {
  std::unique_ptr<MemoryRange> memory;
  std::uint64_t used = 0;  // bytes up to the end of the last task
  std::size_t open = 0;    // tasks not ended
  Task part;               // of a piece that is too large for it
};

// The same error, or where memory for its words is lacking its code alone.
Error told(const Error& why) noexcept;

// Tasks that were given to a stream together.
struct Group {
  Group(const Context& context, std::shared_ptr<struct Mailbox> m)
      : mailbox(std::move(m)), list(context) {}
  std::unique_ptr<Event> event;  // once it was needed
  const std::shared_ptr<struct Mailbox> mailbox;
  GatherList list;
  Direction direction = Direction::across;
  std::uint64_t number = 0;  // of launches; tells one use of the group from the next
  std::uint64_t bytes = 0;
  Nanoseconds launched{0};   // by the clock
  std::uint64_t before = 0;  // the number of the last one in its stream then; 0: that had ended
  Task* first = nullptr;     // nullptr: they have ended
  Group* next = nullptr;
  bool uncalled = false;  // no callback will come: the stream is asked
  bool asked = false;     // the stream was, after it had the tasks
  bool marked = false;    // the event stands behind the tasks
  bool direct = false;    // whoever finds it done may end it: no slot is to be emptied
  bool found = false;     // somebody did; the callback is still to come
  // Multiprocessors may make some of the copies: those inside a GPU, and those of a kernel.
  bool by_multiprocessors = false;
};

// What other threads tell the lane's. Outlives the lane where a lost GPU still owes a callback.
struct Mailbox {
  Mutex mutex;
  CondVar wake;
  std::vector<AcceptedPiece*> staged GUARDED_BY(mutex);
  std::vector<Group*> flying GUARDED_BY(mutex);  // given to a stream, not done
  Group* done GUARDED_BY(mutex) = nullptr;
  Task* stored GUARDED_BY(mutex) = nullptr;   // the storage backend is done with them
  Task* refused GUARDED_BY(mutex) = nullptr;  // the GPU was lost before they were given to it
  Task* emptied GUARDED_BY(mutex) = nullptr;  // their slots' bytes are where they belong
  Task* absent GUARDED_BY(mutex) = nullptr;   // the page cache has not all of them
  bool uncalled GUARDED_BY(mutex) = false;    // one of `flying` is
  std::size_t owed GUARDED_BY(mutex) = 0;     // callbacks to come for groups that have ended
  std::size_t found GUARDED_BY(mutex) = 0;    // the same, ended by who looked: nothing is held up
  // By direction: bytes per ns; which group was the last to end, and when, as far as is known.
  const Clock* clock GUARDED_BY(mutex) = nullptr;
  std::array<double, kDirections> rate GUARDED_BY(mutex);
  std::array<std::uint64_t, kDirections> last GUARDED_BY(mutex){};
  std::array<Nanoseconds, kDirections> ended GUARDED_BY(mutex){};
  bool ending GUARDED_BY(mutex) = false;
};

class Lane {
 public:
  // Errors as open_cuda(). Asks the driver only: context, streams, the kernel that gathers and the
  // thread come with the first piece.
  static Result<std::unique_ptr<Lane>> open(const Machine& machine, const Engine& engine,
                                            const CudaOptions& options);
  // Waits until nothing is in flight (bounded by the limits and storage's, but for what the driver
  // copies inside its call: Way::pageable), ends the thread.
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  EngineId engine() const { return engine_; }
  const std::string& note() const { return note_; }
  // What of the note did not come with the first piece, and why; empty: nothing.
  std::string degraded() const;
  // Whether the engine can copy the piece at all. Requires: check_piece().
  Status check(const Piece& piece) const;
  // Accepts the first n; the error where the GPU is lost or hung. exhausted: no memory on it for a
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
       const Driver& driver, const Device& device, const GatherLimits& limits,
       const GatherLimit& list_limit);
  Status begin() EXCLUDES(beginning_);
  Status start();
  void drop_streams();
  AcceptedPiece* take_place(const Piece& piece, Completion& completion, MemoryRanges& ranges)
      EXCLUDES(mutex_);
  Way way_of(const Piece& piece, MemoryRanges& ranges) const;
  Direction direction_of(const Piece& piece) const;
  bool may_gather(const AcceptedPiece& piece, MemoryRanges& ranges) const;
  // Lets this GPU and the other one of a copy between two reach each other's memory, once.
  void meet(const Piece& piece) noexcept EXCLUDES(beginning_);
  std::optional<EngineId> ssd_of(const Extent& extent) const;
  // Gives tasks of one direction to its stream, or notes that they end without it.
  void launch(Direction direction, std::span<Task* const> tasks) EXCLUDES(mutex_);
  void launch_group(Direction direction, std::span<Task* const> tasks) EXCLUDES(mutex_);
  void copy_tasks(Group& group, std::span<Task* const> tasks);
  void copy_list(Group& group, Task& task);
  void fly(Group& group) EXCLUDES(mutex_);
  bool has_event(Group& group) noexcept;
  Backend::Look look_alone(Nanoseconds most) EXCLUDES(mutex_);
  struct Dues {
    Nanoseconds first = Nanoseconds::max();
    Nanoseconds last{0};
  };
  Dues dues_now(Nanoseconds now);
  std::optional<std::size_t> look_once(Nanoseconds now) EXCLUDES(mutex_);
  static void note_rate(Mailbox& box, const Group& group, Nanoseconds now) REQUIRES(box.mutex);
  void refuse_tasks(std::span<Task* const> tasks, const Error& why);
  static void called_back(void* group);

  // All of these run in the lane's thread.
  void run();
  News wait_for_news();
  bool busy() EXCLUDES(mutex_);
  void settle(const News& news);
  void stream_ended(Task& task);
  void storage_ended(Task& task);
  void take_waiting();
  // Begins as much of the piece as goes into what is left of the slot.
  void begin(Task& task, AcceptedPiece& piece, Slot& slot);
  void give_to_storage(Task& task);
  // Large copies between slots and memory, and from the page cache, are several threads' work.
  void give_to_crew(Task& task);
  void work(Task& task) noexcept;  // in one of them
  void offer_to_storage();
  void launch_ready();
  void end_task(Task& task);
  void report(AcceptedPiece& piece) EXCLUDES(mutex_);
  void look_at_streams();
  void end_flying(std::optional<Direction> asked, const Status& outcome);
  void end_tasks(Task* first);
  void free_groups(Group* first) EXCLUDES(mutex_);
  void judge(Nanoseconds silent, Nanoseconds of_engines);
  void lose(const Error& why);
  void refuse(std::optional<Error> why) EXCLUDES(mutex_);
  std::optional<Error> refusal() noexcept EXCLUDES(mutex_);
  void fail_waiting(const Error& why);
  void fill_ring();
  void make_slots(std::unique_ptr<Buffer> ring);

  // Constant after open().
  const Machine& machine_;
  const EngineId engine_;
  const NodeId home_;
  const CudaOptions options_;
  const std::string name_;
  const NodeId host_;  // the node of the slots
  const Driver& driver_;
  const CUdevice device_;
  const bool page_tables_;
  const GatherLimits limits_;
  const GatherLimit list_limit_;
  const std::string note_;
  const std::shared_ptr<Mailbox> mailbox_ = std::make_shared<Mailbox>();
  const std::unique_ptr<Stored> stored_;

  // Constant after begin(), as all below that says so.
  Mutex beginning_;
  std::atomic<bool> begun_{false};
  std::vector<NodeId> met_ GUARDED_BY(beginning_);  // GPUs that this one was shown to
  std::shared_ptr<const Context> context_;
  std::unique_ptr<GatherKernel> gather_;  // nullptr: nothing is gathered
  std::string not_gathered_;              // why, where something was to be
  std::array<std::unique_ptr<CopyStream>, kDirections> streams_;
  std::thread thread_;
  std::unique_ptr<Crew> crew_;      // made by the lane's thread
  std::atomic<bool> cached_{true};  // files may be asked what of them is in the page cache

  mutable Mutex mutex_;                                 // taken before the mailbox's
  std::vector<std::unique_ptr<AcceptedPiece>> pieces_;  // constant after begin()
  std::vector<AcceptedPiece*> free_pieces_ GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Group>> groups_;  // constant after begin()
  std::vector<Group*> free_groups_ GUARDED_BY(mutex_);
  std::uint64_t launches_ GUARDED_BY(mutex_) = 0;
  std::atomic<bool> looking_{false};              // a thread looks; one is enough
  std::optional<Error> lost_ GUARDED_BY(mutex_);  // why nothing is accepted any more

  // Only the lane's thread, which has nobody to throw to: start() reserves what the lists ever
  // hold.
  std::unique_ptr<Buffer> ring_;
  std::optional<Nanoseconds> ring_tried_;
  std::string no_ring_;  // why there is none
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<Slot*> free_slots_;
  std::vector<AcceptedPiece*> waiting_;  // with parts not yet cut, by arrival
  std::vector<Task*> to_store_;          // not yet accepted by the storage backend
  std::array<std::vector<Task*>, kDirections> ready_;
  // Whose reports this thread is making. What is accepted in one waits for the others, which may
  // bring its neighbours: each ends a piece of what was one copy, and a mover refills one by one.
  static thread_local const Lane* settling_;
  AttendedTime time_;
  Nanoseconds looked_{0};
  std::array<Nanoseconds, kDirections> last_answer_{};
  bool hung_ = false;
};

}  // namespace headrace::cuda
