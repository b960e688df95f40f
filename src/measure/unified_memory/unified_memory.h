// SPDX-License-Identifier: Apache-2.0
// An array that host and GPU share, read or written by a kernel run after run: the experiment that
// C. Lutz published as um_reprex (2019), with its parameters at run time.
//
// Facade of the folder. A measurement, not a way to move data. What counts is the state of the
// array's pages before each run, so runs are told singly, with where pages were on the host before
// and after. docs/design/gpu/um.md has a model of them. Thread-safe.
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
  // Managed memory; else memory of a node of the host.
  bool managed = true;
  // The node of the host that it is measured from: it runs on the CPUs of this node, so that
  // managed memory is first touched there, and memory of a node is there. By default the GPU's
  // nearest, which also runs it where a node has no CPUs.
  std::optional<NodeId> node = {};
  // What the driver is told of managed memory.
  bool accessed_by = false;  // by the GPU
  bool read_mostly = false;
  bool preferred_location_cpu = false;
  // The host writes the array anew before each run but the first, before which it always does.
  bool touch_on_host = false;
  bool write = false;  // the kernel writes; else it reads
  unsigned runs = 5;
  unsigned device = 0;  // by the driver's numbers
  // Managed memory is fetched in such blocks ahead of the kernel, by so many streams in turn.
  std::optional<Bytes> prefetch_block = {};
  unsigned streams = 2;
  // 4 bytes in flight for each of 256 threads of a multiprocessor, as the original has; or reads of
  // four times 16, writes of 16, for each of as many blocks of 256 as it runs at the same time: 4
  // that read, which have 64 registers for a thread, 8 that write.
  bool wide = false;
  // Managed memory larger than what the GPU has free, with some to spare: its pages are evicted for
  // others, and some GPUs have hung.
  bool oversubscribe = false;
};

struct UnifiedMemoryRun {
  Nanoseconds time{0};  // by events of the GPU
  bool correct = true;  // what the kernel read, by its sum
  // Where pages of the array were; absent ones of managed memory are the GPU's, or nobody's yet.
  // Nothing where the kernel does not say.
  std::optional<Residency> before = {};
  std::optional<Residency> after = {};
};

struct UnifiedMemoryResult {
  std::string device;  // its name
  bool emulated = false;
  GpuParadigm paradigm = GpuParadigm::limited;
  Bytes device_free;  // before the array was there
  // The node whose CPUs ran it; nothing where the system bound the thread to none.
  std::optional<NodeId> node = {};
  unsigned blocks = 0;
  unsigned threads_per_block = 0;
  // That all threads which run at the same time ask for; at least, where the driver does not say
  // how many do.
  Bytes in_flight;
  // Whether the driver names the advice when it is asked; nothing where it cannot be asked.
  std::optional<bool> advice_confirmed = {};
  std::vector<UnifiedMemoryRun> runs;
  // After a kernel that writes: the array held in the end what the last run wrote.
  bool written = true;
};

// A GPU that it can be measured on.
struct UnifiedMemoryGpu {
  std::string name;
  Bytes capacity;
  // The most managed memory that is not oversubscribed now: what it has free, less some to spare.
  Bytes managed_bytes;
  GpuParadigm paradigm = GpuParadigm::limited;
};

// That of this host by the driver's number. It makes the GPU's context, which takes memory of it,
// for as long as it looks. absent: no driver or GPU of that number, with the reason.
Result<UnifiedMemoryGpu> unified_memory_gpu(const Machine& machine, unsigned device);

// Measures it here; `machine` is this host. Stopped by the context, between runs, it tells those it
// has. A run that takes longer than 60 s and 20 s for each GiB ends it: timed_out, and the GPU
// keeps the array.
//
// invalid: a size that is none, no run or stream, advice on memory that is not managed. absent: no
// driver or GPU of that number, or no such node. unsupported: the GPU cannot reach such memory.
// exhausted: managed memory larger than what it has free, or no room on the host.
Result<UnifiedMemoryResult> run_unified_memory(const Machine& machine,
                                               const UnifiedMemoryCase& asked,
                                               const ExperimentContext& context = {});

}  // namespace headrace
