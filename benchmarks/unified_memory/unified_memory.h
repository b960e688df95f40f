// SPDX-License-Identifier: Apache-2.0
// An array shared by host and GPU, read or written by a kernel in consecutive runs. It is the
// experiment that C. Lutz published as um_reprex (2019), with its parameters at run time.
// Thread-safe.
//
// Facade of the folder. It measures; it does not move data for a program. The state of the array's
// pages before each run decides the result, so each run is reported, with the host's pages before
// and after. docs/design/gpu/um.md has a model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "headrace/buffer.h"
#include "headrace/machine.h"
#include "headrace/measure.h"
#include "headrace/result.h"
#include "headrace/units.h"

namespace headrace {

struct UnifiedMemoryCase {
  Bytes size = 32_GiB;  // whole MiB
  // Managed memory; false: memory of a host node.
  bool managed = true;
  // The host node to measure from: the experiment runs on its CPUs, so that managed memory is first
  // touched there; host memory is placed there. Default: the GPU's nearest node, whose CPUs are
  // also used if a chosen node has none.
  std::optional<NodeId> node = {};
  // Advice for managed memory.
  bool accessed_by = false;  // by the GPU
  bool read_mostly = false;
  bool preferred_location_cpu = false;
  // The host rewrites the array before each later run; it always writes it before the first.
  bool touch_on_host = false;
  bool write = false;  // the kernel writes; else it reads
  unsigned runs = 5;
  unsigned device = 0;  // the driver's number
  // Managed memory is prefetched in such blocks ahead of the kernel, by `streams` streams in turn.
  std::optional<Bytes> prefetch_block = {};
  unsigned streams = 2;
  // Bytes in flight. false: 4 bytes for each of 256 threads per multiprocessor, as in the original.
  // true: four reads of 16 bytes, or one write of 16, per thread, for all blocks of 256 threads
  // that a multiprocessor runs at the same time: 4 blocks that read (64 registers per thread), 8
  // that write.
  bool wide = false;
  // Allows managed memory beyond the GPU's free memory less a reserve: pages are then evicted, and
  // some GPUs have hung.
  bool oversubscribe = false;
};

struct UnifiedMemoryRun {
  Nanoseconds time{0};  // by GPU events
  bool correct = true;  // the kernel's checksum of its reads agrees
  // Where the array's pages were. Absent pages of managed memory are on the GPU, or not allocated
  // yet. nullopt: the kernel does not say.
  std::optional<Residency> before = {};
  std::optional<Residency> after = {};
};

struct UnifiedMemoryResult {
  std::string device;  // name of the GPU
  bool emulated = false;
  GpuParadigm paradigm = GpuParadigm::limited;
  Bytes device_free;  // before the array was allocated
  // The node whose CPUs ran it; nullopt: the thread could not be bound.
  std::optional<NodeId> node = {};
  unsigned blocks = 0;
  unsigned threads_per_block = 0;
  // Bytes requested by all threads that run at the same time; a lower bound if the driver does not
  // report how many do.
  Bytes in_flight;
  // Whether the driver reports the advice; nullopt: it cannot be asked.
  std::optional<bool> advice_confirmed = {};
  std::vector<UnifiedMemoryRun> runs;
  // For a kernel that writes: the array finally held what the last run wrote.
  bool written = true;
};

// Measures on this host, which `machine` describes. If the context stops it between runs, it
// returns the finished runs. A run longer than 60 s plus 20 s per GiB ends it with timed_out, and
// the GPU keeps the array.
//
// Errors: invalid: no size, run or stream, or advice on memory that is not managed; absent: no
// driver, GPU or node of that number; unsupported: the GPU cannot reach such memory; exhausted:
// managed memory exceeds the GPU's free memory, or the host has too little; timed_out: as above.
Result<UnifiedMemoryResult> run_unified_memory(const Machine& machine,
                                               const UnifiedMemoryCase& asked,
                                               const ExperimentContext& context = {});

}  // namespace headrace
