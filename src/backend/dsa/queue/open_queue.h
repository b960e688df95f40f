// SPDX-License-Identifier: Apache-2.0
// One work queue in use: its portal, the completion records of descriptors in flight, and the state
// of each copy through page faults to its end.
//
// The number in flight never exceeds the queue's size, so a dedicated queue drops nothing. A
// descriptor that is not answered in time ends the portal. After that the device writes nothing
// more for it, and the copies in flight are given back. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/dsa/queue/devices.h"
#include "backend/dsa/queue/partial_copy.h"
#include "backend/dsa/queue/portal.h"
#include "core/mutex.h"
#include "headrace/clock.h"
#include "headrace/result.h"
#include "headrace/units.h"

namespace headrace::dsa {

using OpenPortal = std::function<Result<std::unique_ptr<Portal>>(const WorkQueue&)>;

struct QueueOptions {
  OpenPortal open;
  // A descriptor is given up if its answer is missing this long after the first poll that missed
  // it.
  Nanoseconds limit = std::chrono::seconds{5};
  const Clock* clock = &system_clock();
  // Descriptors submitted at once: in one batch, or in one write().
  std::size_t at_once = 32;
  bool batches = true;  // if the portal takes them
};

// A copy to make, and its owner.
struct Submission {
  Copy copy;
  std::uint64_t tag = 0;
  void* owner = nullptr;  // for the caller of poll()
};

// Details of a copy that failed.
struct Failure {
  Error why;
  PartialCopy rest;
  std::uint32_t tries = 0;  // queues that gave it back
};

// A copy that has ended.
struct Ended {
  std::uint64_t tag = 0;
  void* owner = nullptr;
  std::unique_ptr<Failure> failure = nullptr;  // nullptr: the copy succeeded
};

struct QueueStats {
  std::uint64_t batches = 0;  // batch descriptors submitted
  std::uint64_t faults = 0;   // page faults resolved by touching
};

class OpenQueue {
 public:
  static Result<std::unique_ptr<OpenQueue>> open(const WorkQueue& queue, QueueOptions options);
  // Ends the portal. Copies in flight end without a report: the owner has polled all before, or
  // ignores them.
  ~OpenQueue();

  // Takes the first n; n is small when the queue is full. Error: the queue is gone and no new
  // portal can be opened now; none was taken.
  Result<std::size_t> submit(std::span<const Submission> submissions);
  // Takes a copy that another queue gave back; false: not now.
  bool take_over(const Ended& given_back);
  // Moves ended copies to the back of `ended`, and submits again the copies that were resumed or
  // refused. Touches pages without holding up other threads.
  void poll(std::vector<Ended>& ended);

  // Ends the portal, and all copies in flight with timed_out. Requires: nobody polls.
  void give_up(std::vector<Ended>& ended);

  // Copies taken and not yet ended; a hint while other threads submit or poll.
  std::size_t in_flight() const {
    return in_flight_.load(std::memory_order_relaxed);  // pairs with nothing
  }
  // The most copies at once.
  std::size_t room() const { return room_; }
  const WorkQueue& queue() const { return queue_; }
  std::string_view portal_name() const { return name_; }
  bool mapped() const { return mapped_; }  // whether its portal is
  QueueStats stats() const;

 private:
  // A copy in flight; its index is the number of its completion record.
  struct DescriptorSlot {
    PartialCopy copy;
    std::uint64_t tag = 0;
    void* owner = nullptr;
    std::uint32_t tries = 0;
    bool alone = false;      // not in a batch, because the last batch failed as a whole
    std::uint64_t turn = 0;  // number of submissions
    // The time of the first poll that found it waiting, first for its submission, then for its
    // answer.
    std::optional<Nanoseconds> since;
  };
  // A record in its own cache line: the device writes one record while a core reads the next.
  struct alignas(64) Cell {
    Record record;
  };
  // A batch descriptor's own record and its list, kept until the device is done with them.
  struct Member {
    std::uint32_t slot;
    std::uint64_t turn;
  };
  struct Batch {
    Cell cell;
    std::vector<Member> members;  // empty: free
    std::vector<Descriptor> list;
  };

  OpenQueue(const WorkQueue& queue, QueueOptions options, std::unique_ptr<Portal> portal);

  Status revive() REQUIRES(mutex_);
  void forget_portal() REQUIRES(mutex_);
  std::size_t occupy(std::size_t slots) REQUIRES(mutex_);
  void release(std::uint32_t slot) REQUIRES(mutex_);
  void count_in_flight() REQUIRES(mutex_);
  void make_ready(std::uint32_t slot) REQUIRES(mutex_);
  void submit_ready() REQUIRES(mutex_);
  std::size_t submit_slots(std::span<const std::uint32_t> slots) REQUIRES(mutex_);
  std::size_t submit_singly(std::span<const std::uint32_t> slots) REQUIRES(mutex_);
  std::size_t submit_batch(std::span<const std::uint32_t> slots) REQUIRES(mutex_);
  std::size_t submit(std::span<const Descriptor> descriptors) REQUIRES(mutex_);
  void prepare(std::uint32_t slot, Descriptor& descriptor) REQUIRES(mutex_);
  void collect(std::vector<Ended>& ended) REQUIRES(mutex_);
  void collect_batches() REQUIRES(mutex_);
  // Returns whether the copy is no longer in flight.
  bool take_answer(std::uint32_t slot, std::vector<Ended>& ended) REQUIRES(mutex_);
  void refuse(std::uint32_t slot, const Record& record, std::vector<Ended>& ended) REQUIRES(mutex_);
  void fail_slot(std::uint32_t slot, const Error& why, std::vector<Ended>& ended) REQUIRES(mutex_);
  void stamp(std::span<const std::uint32_t> slots, Nanoseconds now) REQUIRES(mutex_);
  bool late(std::span<const std::uint32_t> slots, Nanoseconds now) const REQUIRES(mutex_);
  void expire(std::vector<Ended>& ended) REQUIRES(mutex_);
  void close_portal(std::vector<Ended>& ended, const Error& why) REQUIRES(mutex_);
  void give_back_refused(std::vector<Ended>& ended) REQUIRES(mutex_);
  void resume(std::uint32_t slot, const Status& touched, std::vector<Ended>& ended)
      REQUIRES(mutex_);
  std::uint8_t status_of(const Cell& cell) const;

  // Immutable after construction.
  const WorkQueue queue_;
  const QueueOptions options_;
  const std::string name_;
  const bool mapped_;
  const std::size_t room_;
  const std::unique_ptr<Cell[]> cells_;  // as slots_; the device writes them too

  mutable Mutex mutex_;
  std::unique_ptr<Portal> portal_ GUARDED_BY(mutex_);     // nullptr: given up, to be opened anew
  std::optional<Error> refusal_ GUARDED_BY(mutex_);       // the portal's, not yet handled
  bool answered_ GUARDED_BY(mutex_) = false;              // since the portal was opened
  std::optional<Nanoseconds> closed_ GUARDED_BY(mutex_);  // when one that gave no answer was
  std::vector<DescriptorSlot> slots_ GUARDED_BY(mutex_);
  std::vector<std::uint32_t> free_ GUARDED_BY(mutex_);
  std::vector<std::uint32_t> ready_ GUARDED_BY(mutex_);      // to be submitted, in order
  std::vector<std::uint32_t> submitted_ GUARDED_BY(mutex_);  // in order
  std::vector<std::uint32_t> touching_ GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Batch>> batches_ GUARDED_BY(mutex_);
  std::vector<Descriptor> buffer_ GUARDED_BY(mutex_);  // being submitted
  QueueStats stats_ GUARDED_BY(mutex_);
  // Written under mutex_; read without it as a hint.
  std::atomic<std::size_t> in_flight_{0};
};

}  // namespace headrace::dsa
