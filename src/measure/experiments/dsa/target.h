// SPDX-License-Identifier: Apache-2.0
// Where the DSA experiment runs: on the devices of this host, or on those of a test. What is run
// is the same: threads that submit copies through lanes (backend/dsa) and wait for them.
//
// Thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "headrace/machine.h"
#include "headrace/profile.h"
#include "headrace/result.h"
#include "headrace/units.h"
#include "measure/instruments/buffer_pool.h"

namespace headrace::experiment_dsa {

enum class DsaMethod : std::uint8_t {
  single,    // each copy by a descriptor of its own, through the mapped portal
  batch,     // some by one batch descriptor
  vectored,  // some by one write() on the queue's character device
};
std::string_view to_string(DsaMethod method);

// The work of one thread: `copies` copies of `bytes` by one device. It submits `at_once` copies by
// `method` as soon as at most `window` are in flight afterwards. If both are equal, it waits for
// all copies before it submits again.
struct DsaThread {
  EngineId engine;
  NodeId from;
  NodeId to;
  Bytes bytes;
  std::size_t copies = 1;
  DsaMethod method = DsaMethod::single;
  std::size_t at_once = 1;
  std::size_t window = 1;
};

// The queue that all threads of a run use, on their devices.
struct DsaShape {
  // Engines in the device's groups; nothing: the present configuration.
  std::optional<unsigned> engines = {};
  bool shared = true;  // else dedicated: each device has one thread
};

struct DsaTimes {
  Nanoseconds all{0};                      // from the first thread's start to the last one's end
  std::vector<Nanoseconds> each;           // as the threads of the run
  bool mapped = true;                      // the first thread's portal; else it submits by write()
  double cpu_share = 1;                    // as run_together(); 1 where threads have to share CPUs
  std::optional<double> cpu_seconds = {};  // of all threads; nothing: unknown
};

// Threads that are ready to make all their copies repeatedly.
class DsaRun {
 public:
  virtual ~DsaRun() = default;
  // Makes all copies once. Errors: unsupported: the queue does not support `method`; io: a copy
  // failed.
  virtual Result<DsaTimes> round() = 0;
};

// Bytes per second while the thread copies and the cores of its source node run STREAM's triad: the
// rate of the copies, or that of the triad (`of_stream`, counted as STREAM does).
using WithStream =
    std::function<Result<double>(const DsaThread& thread, const DsaShape& shape, bool of_stream)>;

class DsaTarget {
 public:
  virtual ~DsaTarget() = default;

  // Prepares the threads of a run on memory of `buffers`, which must outlive the run. Errors:
  // absent: no such device, or none with such a queue; those of allocate().
  virtual Result<std::unique_ptr<DsaRun>> prepare(const std::vector<DsaThread>& threads,
                                                  const DsaShape& shape,
                                                  instruments::BufferPool& buffers) const = 0;
  virtual WithStream with_stream() const = 0;

  virtual Basis basis() const = 0;
  virtual const Machine& machine() const = 0;
  // The machine's DSA engines in this target, ascending.
  virtual std::vector<EngineId> engines() const = 0;
};

}  // namespace headrace::experiment_dsa
