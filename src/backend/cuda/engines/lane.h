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
// A task is the work of one stream at a time: a piece, or a part of a piece with its own slot.
// Tasks that are given to a stream together are a group. The driver calls back when a group is
// done. The callback only notes the group and wakes the lane's thread, which does the rest: host
// copies, reports, and a periodic look at the streams. The look ends finished groups whose
// callbacks are held up, and finds out whether the GPU is still there. Thread-safe.
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

// A part of a piece on a stream. A part with a slot goes through host memory.
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

// Calls `body` for each task of a list. The body may put the task in another list.
void each_task(Task* first, const auto& body) {
  while (first != nullptr) {
    Task* const task = std::exchange(first, first->next);
    body(*task);
  }
}

struct AcceptedPiece {
  Piece piece;
  Completion* completion = nullptr;
  Way way = Way::direct;
  Direction direction = Direction::across;
  std::uint64_t cut = 0;  // bytes that are or were in tasks
  std::size_t open = 0;   // tasks not ended
  Status outcome;         // the first failure
  Task own;               // of a piece that is copied as a whole
};

// Pinned memory for one part, or for several small pieces that waited together. Engines copy
// neighbouring pieces in it as one.
struct Slot {
  std::unique_ptr<MemoryRange> memory;
  std::uint64_t used = 0;  // bytes up to the end of the last task
  std::size_t open = 0;    // tasks not ended
  Task part;               // of a piece that is too large for it
};

// The same error; only its code if there is no memory for its words.
Error told(const Error& why) noexcept;

// Tasks that were given to a stream together.
struct Group {
  Group(const Context& context, std::shared_ptr<struct Mailbox> m)
      : mailbox(std::move(m)), list(context) {}
  std::unique_ptr<Event> event;  // nullptr until it is first needed
  const std::shared_ptr<struct Mailbox> mailbox;
  GatherList list;
  Direction direction = Direction::across;
  std::uint64_t number = 0;  // number of the launch; distinguishes uses of the group
  std::uint64_t bytes = 0;
  Nanoseconds launched{0};   // by the clock
  std::uint64_t before = 0;  // number of the stream's last unfinished group at launch; 0: none
  Task* first = nullptr;     // nullptr: the tasks have ended
  Group* next = nullptr;
  bool uncalled = false;  // no callback will come: the lane asks the stream
  bool asked = false;     // the stream was asked after it got the tasks
  bool marked = false;    // the event is in the stream behind the tasks
  bool direct = false;    // any thread that finds it done may end it: no slot to empty
  bool found = false;     // a thread found it done; counted in Mailbox::found
  // Multiprocessors may make some of the copies: copies inside a GPU, and copies by a kernel.
  bool by_multiprocessors = false;
};

// Messages from other threads to the lane's thread. It outlives the lane while a lost GPU still
// owes a callback.
struct Mailbox {
  Mutex mutex;
  CondVar wake;
  std::vector<AcceptedPiece*> staged GUARDED_BY(mutex);
  std::vector<Group*> flying GUARDED_BY(mutex);  // given to a stream, not done
  Group* done GUARDED_BY(mutex) = nullptr;
  Task* stored GUARDED_BY(mutex) = nullptr;   // the storage backend is done with them
  Task* refused GUARDED_BY(mutex) = nullptr;  // the GPU was lost before they were given to it
  Task* emptied GUARDED_BY(mutex) = nullptr;  // the bytes of their slots have been delivered
  Task* absent GUARDED_BY(mutex) = nullptr;   // the page cache lacks some of their bytes
  bool uncalled GUARDED_BY(mutex) = false;    // some group in `flying` is
  std::size_t owed GUARDED_BY(mutex) = 0;     // callbacks to come for groups that have ended
  std::size_t found GUARDED_BY(mutex) = 0;    // groups ended by a waiting thread's look, not free
  // For each direction: bytes per ns; the last group to end, and its time, as far as known.
  const Clock* clock GUARDED_BY(mutex) = nullptr;  // nullptr after the lane's end
  std::array<double, kDirections> rate GUARDED_BY(mutex);
  std::array<std::uint64_t, kDirections> last GUARDED_BY(mutex){};
  std::array<Nanoseconds, kDirections> ended GUARDED_BY(mutex){};
  bool ending GUARDED_BY(mutex) = false;
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
  // Lets this GPU and the other GPU of a copy reach each other's memory, once.
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
  void end_flying(std::optional<Direction> asked, const Status& outcome);
  void free_groups(Group* first) EXCLUDES(mutex_);
  void judge(Nanoseconds silent, Nanoseconds of_engines);
  void lose(const Error& why);
  void refuse(std::optional<Error> why) EXCLUDES(mutex_);
  std::optional<Error> refusal() noexcept EXCLUDES(mutex_);
  void fail_waiting(const Error& why);
  void make_slots();

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
  const bool batches_;  // the GPU takes the host's addresses, which batches and kernels need
  const GatherLimits limits_;
  const GatherLimit list_limit_;
  const std::string note_;
  const std::shared_ptr<Mailbox> mailbox_ = std::make_shared<Mailbox>();
  const std::unique_ptr<Stored> stored_;

  // Constant after begin(), like all members below that say so.
  Mutex beginning_;
  std::atomic<bool> begun_{false};
  std::vector<NodeId> met_ GUARDED_BY(beginning_);  // GPUs that have been connected to this one
  std::shared_ptr<const Context> context_;
  std::unique_ptr<GatherKernel> gather_;  // nullptr: nothing is gathered
  std::string not_gathered_;              // the reason, if a kernel was to gather
  std::array<std::unique_ptr<CopyStream>, kDirections> streams_;
  std::thread thread_;
  std::unique_ptr<Crew> crew_;      // made by the lane's thread
  std::atomic<bool> cached_{true};  // the page cache can be asked for parts of files

  mutable Mutex mutex_;                                 // taken before the mailbox's
  std::vector<std::unique_ptr<AcceptedPiece>> pieces_;  // constant after begin()
  std::vector<AcceptedPiece*> free_pieces_ GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Group>> groups_;  // constant after begin()
  std::vector<Group*> free_groups_ GUARDED_BY(mutex_);
  std::uint64_t launches_ GUARDED_BY(mutex_) = 0;
  std::atomic<bool> looking_{false};              // a thread looks; one at a time is enough
  std::optional<Error> lost_ GUARDED_BY(mutex_);  // the reason why nothing is accepted any more

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
