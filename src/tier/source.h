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

// A Touch of [begin, end).
Touch touch_of(std::uintptr_t begin, std::uintptr_t end, Bytes touched);

class SourceBase : public HotnessSource {
 public:
  Result<Tracking> track(std::span<const std::byte> memory) final;
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
  virtual void end(const TrackedRange& range) = 0;
  // Adds what was touched in the ranges, which are ascending, and what is unseen.
  virtual Status examine(std::span<const TrackedRange> ranges, HotnessSample& sample) = 0;

  // Adds to what is unseen.
  static void miss(HotnessSample& sample, Bytes bytes, std::string_view why);

 private:
  // They may throw std::bad_alloc.
  Result<Tracking> track_or_throw(std::span<const std::byte> memory);
  Status untrack_or_throw(std::span<const std::byte> memory);
  Result<HotnessSample> look_or_throw();
  // In a child, where the mutex may be held for ever.
  void leave() NO_THREAD_SAFETY_ANALYSIS;

  const Origin origin_;
  const HotnessOptions options_;
  Kernel& kernel_;
  const Clock& clock_;
  Mutex mutex_;
  std::vector<TrackedRange> ranges_ GUARDED_BY(mutex_);  // by address
  Nanoseconds since_ GUARDED_BY(mutex_){};               // of what the next look tells
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
