// SPDX-License-Identifier: Apache-2.0
// What all sources do alike: they check and remember what they track. Thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/fork.h"
#include "core/mutex.h"
#include "headrace/tier/hotness.h"
#include "tier/kernel.h"
#include "tier/vmas.h"

namespace headrace {

// Memory that is tracked.
struct TrackedRange {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  Bytes bytes() const { return {end - begin}; }
  friend bool operator==(const TrackedRange&, const TrackedRange&) = default;
};

// Undoes what was begun, however its scope is left, unless it is to be kept.
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

// What is said of a range that was forgotten.
Unexpected forgotten();

// A Touch of [begin, end).
Touch touch_of(std::uintptr_t begin, std::uintptr_t end, Bytes touched);

class SourceBase : public HotnessSource {
 public:
  using Trackings = std::vector<Result<Tracking>>;

  Result<Tracking> track(std::span<const std::byte> memory) final;
  // As track() of each, which for `referenced` costs little more than one. An error: as if it had
  // not been called. Requires: ascending; expected, and no other call but forget() since.
  Result<Trackings> track_all(std::span<const std::span<const std::byte>> memory);
  // What is forgotten from here on is not tracked by the track_all() of `more` that follows. May
  // throw. Requires: in the process that made it.
  void expect(std::size_t more);
  // What is tracked, or expected to be, is about to be unmapped: nothing more is done to it. Waits
  // only while just this memory is changed, and allocates nothing. Requires: once; `referenced`,
  // whose looks change nothing in what they look at.
  void forget(std::span<const std::byte> memory);
  Status untrack(std::span<const std::byte> memory) final;
  Result<HotnessSample> look() final;

 protected:
  SourceBase(HotnessKind kind, const HotnessOptions& options, Kernel& kernel);
  // Each class that is derived calls it as its destructor begins.
  void end_all();

  // Whether the object belongs to this process.
  bool here() const { return origin_.here(); }
  Kernel& kernel() const { return kernel_; }
  const HotnessOptions& options() const { return options_; }

  // The ways of a source; never two at once. Where begin() fails or throws, nothing is left of
  // it.
  virtual Result<Tracking> begin(const TrackedRange& range) = 0;
  // As begin() of each, with an answer for each; an error or what is thrown is that of all.
  // Requires: room in `answers`.
  virtual Status begin_all(std::span<const TrackedRange> ranges, Trackings& answers);
  virtual void end(const TrackedRange& range) = 0;
  // Adds what was touched in the ranges, which are ascending, and what is unseen.
  virtual Status examine(std::span<const TrackedRange> ranges, HotnessSample& sample) = 0;

  // Changes a range, unless it was forgotten: false. forget() of it waits meanwhile.
  template <class Work>
  bool change(const TrackedRange& range, const Work& work) {
    if (!enter(range)) return false;
    const Undo leaving([&] { enter({}); });
    work();
    return true;
  }
  // Adds to what is unseen.
  static void miss(HotnessSample& sample, Bytes bytes, std::string_view why);

 private:
  // They may throw std::bad_alloc.
  Result<Trackings> track_or_throw(std::span<const std::span<const std::byte>> memory);
  Result<TrackedRange> claim_range(std::span<const std::byte> memory) REQUIRES(mutex_);
  void release_range(const TrackedRange& range);
  Status untrack_or_throw(std::span<const std::byte> memory);
  Result<HotnessSample> look_or_throw();
  bool is_forgotten(const TrackedRange& range) const REQUIRES(forgetting_);
  // From here on the range is the one that is changed; false: it was forgotten.
  bool enter(const TrackedRange& range);
  // Takes what was forgotten out of the ranges.
  void drop_forgotten() REQUIRES(mutex_);
  // In a child, where the mutex may be held for ever.
  void leave() NO_THREAD_SAFETY_ANALYSIS;

  const Origin origin_;
  const HotnessOptions options_;
  Kernel& kernel_;
  const Clock& clock_;
  Mutex mutex_;
  std::vector<TrackedRange> ranges_ GUARDED_BY(mutex_);  // by address
  // Held for moments, while mutex_ is or is not.
  mutable Mutex forgetting_;
  CondVar changed_;
  TrackedRange changing_ GUARDED_BY(forgetting_);
  // Still in ranges_, or will be; there is room for all of those.
  std::vector<TrackedRange> forgotten_ GUARDED_BY(forgetting_);
  Nanoseconds since_ GUARDED_BY(mutex_){};  // of what the next look tells
  std::optional<Nanoseconds> looked_ GUARDED_BY(mutex_);
};

// The bytes of the range that nothing is mapped at.
Bytes unmapped_bytes(Kernel& kernel, const TrackedRange& range);

// Unregisters what is left of the range from a userfaultfd.
void unregister_range(Kernel& kernel, int descriptor, const TrackedRange& range);

// One for each kind; as open_hotness().
using SourceResult = Result<std::unique_ptr<HotnessSource>>;
SourceResult open_referenced(const HotnessOptions& options, Kernel& kernel);
SourceResult open_memfd(const HotnessOptions& options, Kernel& kernel);
SourceResult open_written(const HotnessOptions& options, Kernel& kernel);

// As the public one, asking `kernel`, which must outlive the source.
SourceResult open_hotness(HotnessKind kind, const HotnessOptions& options, Kernel& kernel);

}  // namespace headrace
