// SPDX-License-Identifier: Apache-2.0
// The tasks that a lane has given to the streams of its GPU, until they end.
//
// A task is the work of one stream at a time: a piece, or a part of a piece with its own slot.
// Tasks that are given to a stream together are a group. The first of these ends a group:
//   its callback    in a thread of the driver; only notes the group and wakes the lane's thread
//   look()          of a thread that waits for a piece. It saves the callback and two wake-ups,
//                   which take some 25 microseconds more than a copy of a few KiB
//   end()           of the lane's thread, which looks at the streams now and then, since a host
//                   function of other code may hold up callbacks
// Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/cuda/engines/copy_stream.h"
#include "backend/cuda/engines/engines.h"
#include "backend/cuda/engines/gathering.h"
#include "core/mutex.h"
#include "headrace/backend.h"

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

// The device address of an extent; of host memory its address there.
CUdeviceptr address_of(const Extent& extent);

class Flights {
 public:
  // Copies that kernels make, and whether the driver may take batches.
  struct Means {
    GatherLimits limits = {};
    GatherLimit list_limit;
    bool batches = false;
  };
  // `ended` is called for each task that look() or end() has ended.
  Flights(const Driver& driver, const CudaOptions& options, const Means& means,
          std::shared_ptr<Mailbox> mailbox, std::function<void(Task&)> ended);
  Flights(const Flights&) = delete;
  Flights& operator=(const Flights&) = delete;

  // Makes streams, groups and the gathering kernel, before any other call. Without the kernel, copy
  // engines copy all, and not_gathered() has the reason. Requires, as drop(): `context`, which it
  // borrows until drop(), is current.
  Status start(const Context& context, const std::string& name);
  void drop();
  // The driver may still call back for groups that are not free, so they are never destroyed.
  void abandon_owed() EXCLUDES(mutex_);
  const std::string& not_gathered() const { return not_gathered_; }
  // The limit for copies that a kernel makes; 0 bytes: none.
  GatherLimit limit(Direction direction) const;

  // Gives tasks of one direction to its stream, or notes that they end without it. Requires: the
  // context is current.
  void launch(Direction direction, std::span<Task* const> tasks) EXCLUDES(mutex_);
  // Frees a group whose callback has come. Returns its tasks, unless they have ended before.
  Task* take(Group& group) EXCLUDES(mutex_);
  // As Backend::look().
  Backend::Look look(Nanoseconds most);
  // cuStreamQuery of a direction's stream.
  CUresult query(std::size_t direction) const { return streams_[direction]->query(); }
  // Ends the groups of direction `asked` that its stream was asked about; without `asked`, all
  // groups. Their callbacks give the groups back.
  void end(std::optional<Direction> asked, const Status& outcome);

  // From now on tasks are refused; nullopt: they are taken again.
  void refuse(std::optional<Error> why) EXCLUDES(mutex_);
  std::optional<Error> refusal() noexcept EXCLUDES(mutex_);

 private:
  struct Dues {
    Nanoseconds first = Nanoseconds::max();
    Nanoseconds last{0};
  };
  void launch_group(Direction direction, std::span<Task* const> tasks) EXCLUDES(mutex_);
  void copy_tasks(Group& group, std::span<Task* const> tasks);
  void copy_list(Group& group, Task& task);
  bool has_event(Group& group) noexcept;
  void fly(Group& group) EXCLUDES(mutex_);
  static void called_back(void* group);
  void refuse_tasks(std::span<Task* const> tasks, const Error& why);
  void free_groups(Group* first) EXCLUDES(mutex_);
  Backend::Look look_alone(Nanoseconds most) EXCLUDES(mutex_);
  Dues dues_now(Nanoseconds now);
  std::optional<std::size_t> look_once(Nanoseconds now) EXCLUDES(mutex_);
  static void note_rate(Mailbox& box, const Group& group, Nanoseconds now) REQUIRES(box.mutex);

  const Driver& driver_;
  const CudaOptions& options_;
  const Means means_;
  const std::shared_ptr<Mailbox> mailbox_;
  const std::function<void(Task&)> ended_;

  // Constant after start().
  const Context* context_ = nullptr;
  std::unique_ptr<GatherKernel> gather_;  // nullptr: nothing is gathered
  std::string not_gathered_;              // the reason, if a kernel was to gather
  std::array<std::unique_ptr<CopyStream>, kDirections> streams_;
  std::vector<std::unique_ptr<Group>> groups_;

  Mutex mutex_;  // taken before the mailbox's
  std::vector<Group*> free_groups_ GUARDED_BY(mutex_);
  std::uint64_t launches_ GUARDED_BY(mutex_) = 0;
  std::optional<Error> lost_ GUARDED_BY(mutex_);  // the reason why nothing is accepted any more
  std::atomic<bool> looking_{false};              // a thread looks; one at a time is enough
};

}  // namespace headrace::cuda
