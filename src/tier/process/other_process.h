// SPDX-License-Identifier: Apache-2.0
// What tiering asks of another process. Tests take its place. Thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/result.h"
#include "headrace/units.h"
#include "tier/source.h"

namespace headrace {

// Entries of /proc/PID/pagemap (Documentation/admin-guide/mm/pagemap.rst).
inline constexpr std::uint64_t kPagePresent = std::uint64_t{1} << 63;
inline constexpr std::uint64_t kPageSwapped = std::uint64_t{1} << 62;
inline constexpr std::uint64_t kPageShared = std::uint64_t{1} << 61;     // of a file, or shared
inline constexpr std::uint64_t kPageExclusive = std::uint64_t{1} << 56;  // mapped here alone

struct ProcessState {
  std::uint64_t started = 0;     // ticks since boot; with the PID it names one process for ever
  std::uint64_t start_code = 0;  // address; another program has another
  Nanoseconds cpu{};             // that it has used, all threads
  std::uint64_t major_faults = 0;
  std::uint64_t threads = 0;
  Bytes resident;  // of all kinds of memory
};

// A page fault of the process.
struct PageFault {
  std::uintptr_t address = 0;
  bool major = false;  // came from swap
};

// What page_out() did.
struct PagedOut {
  Bytes asked;    // by the kernel taken as asked for
  Bytes refused;  // ranges that are not mapped any more, or that it does not page out
};

// A mapping, or a part of one, and what of it was touched.
struct MappingUse : TrackedRange {
  bool huge = false;  // has huge pages, or is to have them
  Bytes present;      // pages that are in memory
  Bytes touched;
  std::vector<TrackedRange> written;  // all of it touched; ascending
};

class OtherProcess {
 public:
  virtual ~OtherProcess() = default;
  // absent: it has ended.
  virtual Result<ProcessState> state() = 0;
  // Anonymous memory of it that is in huge pages (THP).
  virtual Bytes huge() = 0;
  // Private anonymous memory that is written, not locked, no stack; ascending.
  virtual Result<std::vector<TrackedRange>> memory() = 0;
  // Entries of the pages from `begin` on.
  virtual Status entries(std::uintptr_t begin, std::span<std::uint64_t> entries) = 0;
  virtual Result<PagedOut> page_out(std::span<const TrackedRange> ranges) = 0;
  // Brings pages in and maps them; the number of pages that are there afterwards.
  virtual Result<std::size_t> bring_in(std::span<const std::uintptr_t> pages) = 0;
  // Bytes that still fit into swap.
  virtual Bytes swap_free() = 0;

  // The use of memory() since forget_use(). Written pages are named where tells_written(); else
  // only the share of each mapping is known.
  virtual Result<std::vector<MappingUse>> use() = 0;
  // Whether the kernel has soft-dirty bits (on arm64 most have none) and lists them (Linux 6.7).
  virtual bool tells_written() const = 0;
  // From now on nothing was touched. denied: what use() tells cannot be had; unsupported: the
  // process itself uses accessed or soft-dirty bits, or a device or a virtual machine has its
  // memory mapped.
  virtual Status forget_use() = 0;

  // How often the kernel has gone round its memory for hints; nothing where it does not tell.
  virtual std::optional<std::uint64_t> hint_rounds() = 0;

  // Begins to listen for faults of all threads, those that come too at each call. denied,
  // unsupported, exhausted: with why.
  virtual Status listen() = 0;
  // Why it does not listen to all of them, and to how many it does; "": it does.
  virtual std::string unheard() const = 0;
  // Takes the faults since the last call; the number of those that were lost.
  virtual std::uint64_t take_faults(std::vector<PageFault>& faults) = 0;
};

// The process `pid`, held alone, whoever else asks by the same /proc. absent: there is none;
// exhausted: another holds it; unsupported: a thread of the kernel; invalid: this process; denied:
// one that may not be touched, with what it takes.
Result<std::unique_ptr<OtherProcess>> open_process(int pid);

// Whether the process of a pidfd has ended: until its parent hears of it no other has its number.
bool has_ended(int pidfd);

// Why the bits of a process that has such a file open, by the target of its link in /proc/PID/fd,
// must not be cleared; "": it says nothing against it.
std::string_view forbids_clearing(std::string_view target);

// Parses /proc/PID/stat; invalid where it is none.
Result<ProcessState> parse_state(std::string_view stat, std::uint64_t ticks_per_second);
// Memory as OtherProcess::memory() from the text of /proc/PID/maps.
std::vector<TrackedRange> parse_memory(std::string_view maps);
// `ranges` without `holes`, both ascending and disjoint.
std::vector<TrackedRange> without(std::span<const TrackedRange> ranges,
                                  std::span<const TrackedRange> holes);

}  // namespace headrace
