// SPDX-License-Identifier: Apache-2.0
// How often memory of this process is used: sources that look, and heat that decays.
//
// A source tracks ranges of memory. Each look returns the parts that were touched since the
// previous look. Sources differ in what they see and cost (HotnessTraits). All are built on what an
// ordinary kernel shows an unprivileged process about itself, so none sees everything. They are no
// profilers: none knows the thread that touched a page, or the number of touches between two looks.
// They do not look at other processes.
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
  referenced,  // chunks as separate mappings, and the accessed bits of their pages
  memfd,    // shared memory whose page table entries are dropped; an entry that is back was touched
  written,  // pages write-protected without a handler (userfaultfd); an unprotected one was written
};

inline constexpr HotnessKind kHotnessKinds[] = {HotnessKind::referenced, HotnessKind::memfd,
                                                HotnessKind::written};

// "referenced", "memfd", "written".
std::string_view to_string(HotnessKind kind);

// The abilities and cost of a source.
struct HotnessTraits {
  HotnessKind kind = HotnessKind::referenced;
  bool sees_reads = false;
  bool sees_writes = false;
  // True: it distinguishes pages. False: it counts the touched bytes of each chunk.
  bool by_page = false;
  bool needs_root = false;
  std::string memory;  // the memory that it can track
  std::string cost;    // its effect on the program besides the time of looks, in words
};

HotnessTraits traits_of(HotnessKind kind);

// A range in which `touched` bytes, in whole pages, were touched. If fewer than all were, their
// position is unknown.
struct Touch {
  std::span<const std::byte> range;
  Bytes touched;
};

// The result of one look.
struct HotnessSample {
  std::vector<Touch> touches;  // ascending, disjoint; memory outside was not touched
  Nanoseconds covered{};       // since the previous look, or since the first track()
  // Tracked bytes with unknown state at this look, and why; "" if there are none.
  Bytes unseen;
  std::string why_unseen;
};

// How a range is tracked.
struct Tracking {
  Bytes granularity;  // the smallest distinguished part: a page, or a chunk
  std::string note;   // why it is not the requested size; "" if it is
};

struct HotnessOptions {
  // The smallest part that `referenced` distinguishes, a power of two of pages. It is larger where
  // there are huge pages, which stay whole, and where the kernel allows no more mappings.
  Bytes chunk{256 << 10};
  // Looks sooner than this after the previous one are refused.
  Nanoseconds least_interval = std::chrono::milliseconds{100};
  // The clock of the times above; must outlive the source. If it is set back, no time has passed.
  const Clock* clock = nullptr;  // system_clock()
};

// Thread-safe: several threads may track, look and use the memory at once. The memory's contents
// are unaffected. A look may miss touches made during it.
//
// No source sees accesses that bypass the page table entries of the range:
// - by a device, to pages pinned for it (a registered buffer of io_uring, RDMA)
// - through another mapping of the same file
//
// In a child made by fork() a source is unsupported, and nothing is tracked.
class HotnessSource {
 public:
  // Restores everything that was changed in memory still tracked.
  virtual ~HotnessSource() = default;

  const HotnessTraits& traits() const { return traits_; }

  // Begins to track whole pages of mapped memory, which the caller keeps mapped: nothing is
  // reported about unmapped memory. No change remains after an error.
  //
  // With `referenced`, track() takes as long as a look at the whole process, so few large ranges
  // are better than many small ones. It forgets touches of other memory since the last look.
  // mremap() cannot grow the memory while it is tracked, since it is many mappings.
  // Errors:
  // - invalid: no bytes; not whole pages; not mapped; already tracked by a source of this process
  // - unsupported: a kind of memory that the source cannot track
  // - exhausted: the kernel has no space for it
  virtual Result<Tracking> track(std::span<const std::byte> memory) = 0;

  // Restores everything that track() changed. Errors: invalid: this source did not track `memory`
  // in one call.
  virtual Status untrack(std::span<const std::byte> memory) = 0;

  // Returns the memory touched since the last look.
  // Errors: exhausted: sooner than HotnessOptions::least_interval (no touch is lost); and the
  // kernel's errors (some touches may be lost).
  virtual Result<HotnessSample> look() = 0;

 protected:
  explicit HotnessSource(HotnessKind kind) : traits_(traits_of(kind)) {}

 private:
  const HotnessTraits traits_;
};

// Opens a source, and checks on a few pages of its own that it sees what it promises.
// Errors:
// - invalid: a chunk that is not a power of two of pages; an interval below 0
// - unsupported: this kernel lacks a feature, which the message names
// - denied: a container or the kernel's settings forbid it
// - exhausted: this process already has a source `referenced`. Each look clears the accessed bits
//   of the whole process, so two would hide touches from each other.
Result<std::unique_ptr<HotnessSource>> open_hotness(HotnessKind kind,
                                                    const HotnessOptions& options = {});

// Memory that `memfd` can track: a mapped shared file in memory. Zeroed, untouched until used,
// swappable. A child made by fork() shares its bytes instead of having a copy. Thread-compatible.
class SharedMemory {
 public:
  // In whole pages. Errors: invalid: no bytes; exhausted: no addresses, or no space in memory
  // files.
  static Result<SharedMemory> make(Bytes bytes);

  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  std::span<std::byte> bytes() const { return bytes_; }

 private:
  explicit SharedMemory(std::span<std::byte> bytes) : bytes_(bytes) {}
  std::span<std::byte> bytes_;
};

// The cost of a source on this machine now, measured on memory of its own: medians of several
// rounds.
struct HotnessCost {
  double look_ns_per_page = 0;  // a look at memory with all pages touched
  double access_ns = 0;         // an access to a page without looks
  double first_access_ns = 0;   // the first access to a page after a look
  std::uint64_t pages = 0;      // number of tracked pages
};

// Takes less than half a second for 16 MiB. No round begins after 0.4 s, except the first: seven
// writes to each page and one look, which for `referenced` covers the whole process.
// Errors: invalid: not a positive number of whole pages; and as open_hotness().
Result<HotnessCost> measure_hotness_cost(HotnessKind kind, Bytes memory = 16_MiB);

struct HeatOptions {
  // Time without a touch after which heat is halved.
  Nanoseconds half_life = std::chrono::seconds{10};
  // The unit of accounting, aligned to its size: a power of two.
  Bytes chunk{4096};
};

// A chunk and its heat.
struct HotChunk {
  std::uintptr_t begin = 0;  // address
  double heat = 0;
};

// The heat of memory, per chunk: the share of it touched between two looks, averaged over the past
// with weights that halve every half-life. 1: all of the chunk is touched between any two looks.
// Heat does not depend on the interval of looks.
//
// Follows one source. Thread-compatible. Takes about 50 bytes per recently touched chunk.
class Hotness {
 public:
  // Requires: half_life > 0; a chunk that is a power of two.
  explicit Hotness(const HeatOptions& options = {});

  void add(const HotnessSample& sample);

  // Heat of the chunk that contains `address`; 0 if it was never touched.
  double heat(const void* address) const;
  // All warm chunks, the hottest first; equally hot ones by address.
  std::vector<HotChunk> hottest() const;
  // Forgets the chunks that begin in `memory`: it was unmapped or is used for something else.
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
  Nanoseconds time_{};  // sum over all samples
  std::size_t drop_at_;
  std::unordered_map<std::uint64_t, Entry> entries_;  // by address / chunk
};

}  // namespace HEADRACE_API headrace
