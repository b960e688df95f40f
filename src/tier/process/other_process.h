// SPDX-License-Identifier: Apache-2.0
// Another process as tiering sees it; tests replace it. Thread-compatible.
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
inline constexpr std::uint64_t kPageExclusive = std::uint64_t{1} << 56;  // not mapped elsewhere

struct ProcessState {
  std::uint64_t started = 0;     // ticks since boot; with the PID it identifies a process for ever
  std::uint64_t start_code = 0;  // an address; changes with exec
  Nanoseconds cpu{};             // used by all threads
  std::uint64_t major_faults = 0;
  std::uint64_t threads = 0;
  Bytes resident;  // of all kinds of memory
};

// A page fault of the process.
struct PageFault {
  std::uintptr_t address = 0;
  bool major = false;  // came from swap
};

// A mapping, or a part of one, and how much of it was touched.
struct MappingUse : TrackedRange {
  bool huge = false;  // has, or shall have, huge pages
  Bytes present;      // pages in memory
  Bytes touched;
  std::vector<TrackedRange> written;  // fully touched parts; ascending
};

class OtherProcess {
 public:
  virtual ~OtherProcess() = default;
  // Errors: absent: the process has ended.
  virtual Result<ProcessState> state() = 0;
  // Anonymous memory in huge pages (THP).
  virtual Bytes huge() = 0;
  // Private, writable, unlocked anonymous memory, without stacks; ascending.
  virtual Result<std::vector<TrackedRange>> memory() = 0;
  // Reads the pagemap entries of the pages from `begin` on.
  virtual Status entries(std::uintptr_t begin, std::span<std::uint64_t> entries) = 0;
  // Pages that are unmapped meanwhile, or cannot move, are left out.
  virtual Status page_out(std::span<const TrackedRange> ranges) = 0;
  virtual Status bring_in(std::span<const std::uintptr_t> pages) = 0;
  // Free bytes of swap.
  virtual Bytes swap_free() = 0;

  // Use of memory() since forget_use(). With tells_written(), written pages are listed; otherwise
  // only the share of each mapping is known.
  virtual Result<std::vector<MappingUse>> use() = 0;
  // Whether the kernel has soft-dirty bits (most arm64 kernels do not) and lists them (Linux 6.7).
  virtual bool tells_written() const = 0;
  // Resets all touches. Errors: denied: use() cannot work; unsupported: the process itself uses
  // accessed or soft-dirty bits, or a device or a virtual machine has mapped its memory.
  virtual Status forget_use() = 0;

  // The kernel's rounds over the process's memory for hints; nullopt: not reported.
  virtual std::optional<std::uint64_t> hint_rounds() = 0;

  // Begins to listen for faults of all threads; call it again to include new threads. Errors:
  // denied, unsupported, exhausted: with the reason.
  virtual Status listen() = 0;
  // Why it listens to only some threads, and to how many; "": it listens to all.
  virtual std::string unheard() const = 0;
  // Takes the faults since the last call; returns the number of lost faults.
  virtual std::uint64_t take_faults(std::vector<PageFault>& faults) = 0;
};

// Opens the process `pid` exclusively among all tiers that use the same /proc. Errors: absent: no
// such process; exhausted: another tier has it; unsupported: a kernel thread; invalid: this
// process; denied: no permission, with the missing right.
Result<std::unique_ptr<OtherProcess>> open_process(int pid);

// Whether the process of a pidfd has ended. Its number stays taken until its parent collects it.
bool has_ended(int pidfd);

// Why a process must not have its bits cleared while it has such a file open; "": no objection.
// `target`: of the link in /proc/PID/fd.
std::string_view forbids_clearing(std::string_view target);

// Parses /proc/PID/stat. Errors: invalid: other text.
Result<ProcessState> parse_state(std::string_view stat, std::uint64_t ticks_per_second);
// Parses /proc/PID/maps into the ranges of OtherProcess::memory().
std::vector<TrackedRange> parse_memory(std::string_view maps);
// `ranges` without `holes`, both ascending and disjoint.
std::vector<TrackedRange> without(std::span<const TrackedRange> ranges,
                                  std::span<const TrackedRange> holes);

}  // namespace headrace
