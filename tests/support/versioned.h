// SPDX-License-Identifier: Apache-2.0
// A cell that is written in versions 1, 2, 3, ..., and a check that its reads are linearizable:
// each read and write takes effect at one moment between its begin and its end. Since versions are
// unique and in order, that is so exactly if each read returns
//
// - no version older than a write that ended, or a read that ended, before the read began;
// - no version whose write began after the read ended.
//
// Word: std::atomic<unsigned> for threads; unsigned for interleavings chosen by a scheduler, which
// must not be disturbed by its own atomic accesses. One write at a time.
#pragma once

#include <algorithm>
#include <atomic>

namespace headrace::test {

template <class Word>
class Versioned {
 public:
  // Before the first access, or when nobody else uses the cell.
  void restart(unsigned version) { begun_ = ended_ = seen_ = version; }
  unsigned begun() const { return begun_; }

  // Returns the version to write.
  unsigned begin_write() { return begun_ = begun_ + 1; }
  void end_write(unsigned version) { raise(ended_, version); }

  // Returns the least version that a read from here on may return.
  unsigned begin_read() const { return std::max<unsigned>(ended_, seen_); }
  // The same if reads may return old and new versions in turn until a write has ended.
  unsigned written() const { return ended_; }
  // Returns why a read that began with `least` may not return `version`; null if it may.
  const char* end_read(unsigned least, unsigned version) {
    if (version < least) return "a read is older than a write or a read that ended before it";
    if (version > begun_) return "a read is of a version that was never written";
    raise(seen_, version);
    return nullptr;
  }

 private:
  static void raise(unsigned& to, unsigned version) { to = std::max(to, version); }
  static void raise(std::atomic<unsigned>& to, unsigned version) {
    for (unsigned now = to; now < version && !to.compare_exchange_weak(now, version);) {
    }
  }

  Word begun_{0};
  Word ended_{0};
  Word seen_{0};
};

}  // namespace headrace::test
