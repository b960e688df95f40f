// SPDX-License-Identifier: Apache-2.0
// Which memory of this process is used, and how often: sources that look, and the heat that decays.
//
// A source is told which memory to track; each look says which parts of it were touched since the
// look before. Sources differ in what they see and what they cost (HotnessTraits): none is an
// oracle, all are built on what an ordinary kernel lets a process without privileges know about
// itself. They are no profiler: who touched a page, or how often between two looks, none can tell.
// Other processes are not looked at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "headrace/clock.h"
#include "headrace/export.h"
#include "headrace/result.h"
#include "headrace/units.h"

namespace HEADRACE_API headrace {

enum class HotnessKind : std::uint8_t {
  referenced,  // chunks as mappings of their own, and the accessed bits of their pages
  memfd,       // shared memory whose page table entries are dropped: who is back was touched
  written,     // pages write-protected without a handler (userfaultfd): who lost it was written
};

inline constexpr HotnessKind kHotnessKinds[] = {HotnessKind::referenced, HotnessKind::memfd,
                                                HotnessKind::written};

// "referenced", "memfd", "written".
std::string_view to_string(HotnessKind kind);

// What a source sees, and at what price.
struct HotnessTraits {
  HotnessKind kind = HotnessKind::referenced;
  bool sees_reads = false;
  bool sees_writes = false;
  // Whether it tells single pages apart; if not, how many bytes of each chunk were touched.
  bool by_page = false;
  bool needs_root = false;
  std::string memory;  // which memory it can track
  std::string cost;    // what it does to the program besides the time of looks, in words
};

HotnessTraits traits_of(HotnessKind kind);

// A range in which `touched` bytes, in whole pages, were touched; which of them is not known if
// they are fewer than all.
struct Touch {
  std::span<const std::byte> range;
  Bytes touched;
};

// What one look found.
struct HotnessSample {
  std::vector<Touch> touches;  // ascending, disjoint; memory that is in none was not touched
  Nanoseconds covered{};       // the time since the look before, or since the first track()
  // Tracked bytes about which nothing can be said this time, and why; "" if there are none.
  Bytes unseen;
  std::string why_unseen;
};

// How a range is tracked.
struct Tracking {
  Bytes granularity;  // what is told apart: a page, or a chunk
  std::string note;   // why it is not what was asked for; "" if it is
};

struct HotnessOptions {
  // What `referenced` tells apart, a power of two of pages; more where there are huge pages, which
  // are kept whole, and where the kernel allows no more mappings.
  Bytes chunk{256 << 10};
  // Looks that are asked for sooner after the one before are refused.
  Nanoseconds least_interval = std::chrono::milliseconds{100};
  // Tells the times above; must outlive the source. Where it is set back, no time has passed.
  const Clock* clock = nullptr;  // system_clock()
};

// Thread-safe; several threads may track, look and use the memory at once, and its bytes are the
// same as without. Of touches made while a look is under way some may be missed. None sees what
// does not go through the page table entries of the range: what a device reads or writes in pages
// that were pinned for it (a registered buffer of io_uring, RDMA), and what is touched through
// another mapping of the same file. In a child made by fork() a source is unsupported, and what was
// tracked is not tracked there.
class HotnessSource {
 public:
  // Restores what was changed in all memory that is still tracked.
  virtual ~HotnessSource() = default;

  const HotnessTraits& traits() const { return traits_; }

  // Begins to track whole pages of mapped memory, which the caller keeps mapped: of what is
  // unmapped nothing is said any more. With `referenced`, touches of other memory since the last
  // look are forgotten, it takes as long as a look at the whole process (few large ranges are
  // better than many small ones), and mremap() does not grow the memory meanwhile: it is many
  // mappings. invalid: no bytes, not whole pages, not mapped, tracked already (by any source of
  // this process). unsupported: memory of a kind that the source cannot track. exhausted: the
  // kernel has no room for it. Nothing is changed after an error.
  virtual Result<Tracking> track(std::span<const std::byte> memory) = 0;

  // Restores what track() changed. invalid: `memory` was not tracked by this source in one call.
  virtual Status untrack(std::span<const std::byte> memory) = 0;

  // What was touched since the last look. exhausted: sooner than HotnessOptions::least_interval;
  // nothing is forgotten then. Else the errors of the kernel; some touches may be forgotten then.
  virtual Result<HotnessSample> look() = 0;

 protected:
  explicit HotnessSource(HotnessKind kind) : traits_(traits_of(kind)) {}

 private:
  const HotnessTraits traits_;
};

// Opens a source, and tries on some pages of its own that it sees what it promises.
//
// invalid: a chunk that is no power of two of pages, an interval below 0. unsupported: this kernel
// has not what it takes, with what that is; denied: a container or the kernel's settings forbid it.
// exhausted: there is a source `referenced` in this process already: each of its looks clears the
// accessed bits of the whole process, so that two would blind one another.
Result<std::unique_ptr<HotnessSource>> open_hotness(HotnessKind kind,
                                                    const HotnessOptions& options = {});

// Memory that `memfd` can track: pages of a file in memory, mapped shared. Zeroed; untouched until
// it is used; swapped like any other. A child made by fork() shares its bytes instead of having a
// copy. Thread-compatible.
class SharedMemory {
 public:
  // In whole pages. invalid: no bytes; exhausted: no addresses, or no room in memory files.
  static Result<SharedMemory> make(Bytes bytes);

  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  std::span<std::byte> bytes() const { return bytes_; }

 private:
  explicit SharedMemory(std::span<std::byte> bytes) : bytes_(bytes) {}
  std::span<std::byte> bytes_;
};

// What a source costs on this machine now, on memory of its own: medians of some rounds.
struct HotnessCost {
  double look_ns_per_page = 0;  // a look at memory of which each page was touched
  double access_ns = 0;         // an access to a page while nobody looks
  double first_access_ns = 0;   // the first access to a page after a look
  std::uint64_t pages = 0;      // that were tracked
};

// Takes less than half a second for 16 MiB. No round begins after 0.4 s, but the first is done
// whatever it takes: seven writes to each page and one look, which for `referenced` is one at the
// whole process. invalid: not some whole pages. Other errors as open_hotness().
Result<HotnessCost> measure_hotness_cost(HotnessKind kind, Bytes memory = 16_MiB);

struct HeatOptions {
  // After this time without a touch heat is halved.
  Nanoseconds half_life = std::chrono::seconds{10};
  // Memory is kept account of by so many bytes, at multiples of them: a power of two.
  Bytes chunk{4096};
};

// A chunk and its heat.
struct HotChunk {
  std::uintptr_t begin = 0;  // address
  double heat = 0;
};

// The heat of memory: per chunk the share of it that was touched between two looks, averaged over
// the past with weights that halve every half-life. 1 is a chunk that is touched as a whole between
// any two looks; it does not depend on how often one looks. Grows by an entry of some 50 bytes per
// chunk that was touched lately.
//
// It follows one source. Thread-compatible.
class Hotness {
 public:
  // Requires: half_life > 0, a chunk that is a power of two.
  explicit Hotness(const HeatOptions& options = {});

  void add(const HotnessSample& sample);

  // Heat of the chunk that holds `address`; 0 if it was never touched.
  double heat(const void* address) const;
  // All chunks that are warm, the hottest first, those of equal heat by address.
  std::vector<HotChunk> hottest() const;
  // Forgets the chunks that begin in `memory`: it was unmapped or means something else now.
  void forget(std::span<const std::byte> memory);

 private:
  struct Entry {
    double heat = 0;  // at the time `at`
    Nanoseconds at{};
  };
  double now(const Entry& entry) const;
  void warm(const Touch& touch, double weight);
  void drop_cold();

  const double half_life_;  // ns
  const std::uint64_t chunk_;
  Nanoseconds time_{};  // covered by all samples
  std::size_t drop_at_;
  std::unordered_map<std::uint64_t, Entry> entries_;  // by address / chunk
};

}  // namespace HEADRACE_API headrace
