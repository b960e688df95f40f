// SPDX-License-Identifier: Apache-2.0
// The common part of all sources: checks and remembers the tracked ranges. Thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/fork.h"
#include "core/mutex.h"
#include "headrace/tier/hotness.h"
#include "host/kernel.h"
#include "tier/vmas.h"

namespace headrace {

// A tracked range.
struct TrackedRange {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  Bytes bytes() const { return {end - begin}; }
  friend bool operator==(const TrackedRange&, const TrackedRange&) = default;
};

// Runs `work` when its scope ends in any way, unless keep() was called.
template <class Work>
class Undo {
 public:
  explicit Undo(Work work) : work_(std::move(work)) {}
  Undo(const Undo&) = delete;
  ~Undo() {
    if (!kept_) work_();
  }
  void keep() { kept_ = true; }

 private:
  Work work_;
  bool kept_ = false;
};

// The error for a range that was forgotten.
Unexpected forgotten();

// A Touch of [begin, end).
Touch touch_of(std::uintptr_t begin, std::uintptr_t end, Bytes touched);

class SourceBase : public HotnessSource {
 public:
  using Trackings = std::vector<Result<Tracking>>;

  Result<Tracking> track(std::span<const std::byte> memory) final;
  // As track() for each range; for `referenced`, it costs little more than one range. On an error
  // nothing is tracked. Requires: ascending; after expect(), with no call since except forget().
  Result<Trackings> track_all(std::span<const std::span<const std::byte>> memory);
  // Announces `more` ranges for the next track_all(). Ranges that are forgotten from here on are
  // left out of it. May throw. Requires: in the process that made the source.
  void expect(std::size_t more);
  // Announces that a tracked or expected range is about to be unmapped; the source then leaves it
  // alone. Waits only while this range is being changed, and allocates nothing. Requires: at most
  // once per range; a `referenced` source, whose looks do not change the memory.
  void forget(std::span<const std::byte> memory);
  Status untrack(std::span<const std::byte> memory) final;
  Result<HotnessSample> look() final;

 protected:
  SourceBase(HotnessKind kind, const HotnessOptions& options, Kernel& kernel);
  // Each derived class calls it first in its destructor.
  void end_all();

  // Whether the object belongs to this process.
  bool here() const { return origin_.here(); }
  Kernel& kernel() const { return kernel_; }
  const HotnessOptions& options() const { return options_; }

  // Steps of a concrete source, never called concurrently. A begin() that fails or throws leaves no
  // trace.
  virtual Result<Tracking> begin(const TrackedRange& range) = 0;
  // As begin() for each range, with one answer each; an error or exception concerns all of them.
  // Requires: capacity in `answers`.
  virtual Status begin_all(std::span<const TrackedRange> ranges, Trackings& answers);
  virtual void end(const TrackedRange& range) = 0;
  // Adds the touched and the unseen memory of the ranges. Requires: ascending.
  virtual Status examine(std::span<const TrackedRange> ranges, HotnessSample& sample) = 0;

  // Runs `work`, which changes a range; false: the range was forgotten. A forget() of the range
  // waits meanwhile.
  template <class Work>
  bool change(const TrackedRange& range, const Work& work) {
    if (!enter(range)) return false;
    const Undo leaving([&] { enter({}); });
    work();
    return true;
  }
  // Adds `bytes` to the unseen memory.
  static void miss(HotnessSample& sample, Bytes bytes, std::string_view why);

 private:
  // These may throw std::bad_alloc.
  Result<Trackings> track_or_throw(std::span<const std::span<const std::byte>> memory);
  Result<TrackedRange> claim_range(std::span<const std::byte> memory) REQUIRES(mutex_);
  void release_range(const TrackedRange& range);
  Status untrack_or_throw(std::span<const std::byte> memory);
  Result<HotnessSample> look_or_throw();
  bool is_forgotten(const TrackedRange& range) const REQUIRES(forgetting_);
  // Marks the range as being changed; false: it was forgotten.
  bool enter(const TrackedRange& range);
  // Removes forgotten ranges from ranges_.
  void drop_forgotten() REQUIRES(mutex_);
  // For a child of fork(), in which the mutex may stay locked.
  void leave() NO_THREAD_SAFETY_ANALYSIS;

  const Origin origin_;
  const HotnessOptions options_;
  Kernel& kernel_;
  const Clock& clock_;
  Mutex mutex_;
  std::vector<TrackedRange> ranges_ GUARDED_BY(mutex_);  // by address
  // Held only briefly, with or without mutex_.
  mutable Mutex forgetting_;
  CondVar changed_;
  TrackedRange changing_ GUARDED_BY(forgetting_);
  // Forgotten ranges that are, or will be, in ranges_; capacity for all of those.
  std::vector<TrackedRange> forgotten_ GUARDED_BY(forgetting_);
  Nanoseconds since_ GUARDED_BY(mutex_){};  // begin of the next sample
  std::optional<Nanoseconds> looked_ GUARDED_BY(mutex_);
};

// The bytes of the range that are not mapped.
Bytes unmapped_bytes(Kernel& kernel, const TrackedRange& range);

// Unregisters the remaining parts of the range from a userfaultfd.
void unregister_range(Kernel& kernel, int descriptor, const TrackedRange& range);

// One function per kind; as open_hotness().
using SourceResult = Result<std::unique_ptr<HotnessSource>>;
SourceResult open_referenced(const HotnessOptions& options, Kernel& kernel);
SourceResult open_memfd(const HotnessOptions& options, Kernel& kernel);
SourceResult open_written(const HotnessOptions& options, Kernel& kernel);

// As the public function, with this kernel. Requires: `kernel` outlives the source.
SourceResult open_hotness(HotnessKind kind, const HotnessOptions& options, Kernel& kernel);

}  // namespace headrace
