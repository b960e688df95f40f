// Where the DSA experiments run: on the devices of this host, or on a model of them. What is run is
// the same: threads that hand copies over through lanes (backend/dsa) and wait for them.
//
// Thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/machine.h"
#include "headrace/result.h"
#include "headrace/units.h"

namespace headrace {

enum class DsaMethod : std::uint8_t {
  single,    // each copy by a descriptor of its own, through the mapped portal
  batch,     // some by one batch descriptor
  vectored,  // some by one write() on the queue's character device
};
std::string_view to_string(DsaMethod method);

// What one thread does: `copies` copies of `bytes` by one device. It hands `at_once` of them over,
// as `method` says, as soon as not more than `window` are under way then; so with both equal it
// waits for all before it goes on.
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
  // In the device's groups; nothing: as it is configured, in a model one.
  std::optional<unsigned> engines = {};
  bool shared = true;  // else dedicated: each device has one thread
};

struct DsaTimes {
  Nanoseconds all{0};             // from the first thread's start to the last one's end
  std::vector<Nanoseconds> each;  // as the threads of the run
  std::string portal;             // the first thread's way in: "ENQCMD", "write()", ...
  double cpu_share = 1;           // as run_together(); 1 where threads have to share CPUs
};

class DsaStand {
 public:
  virtual ~DsaStand() = default;

  // Runs the threads together, `rounds` times where that can give another time.
  // absent: no such device, or none with such a queue; unsupported: the queue does not take what
  // `method` hands over; as allocate(): no memory; io: a copy failed.
  virtual Result<std::vector<DsaTimes>> run(const std::vector<DsaThread>& threads,
                                            const DsaShape& shape, unsigned rounds) = 0;

  // "hardware" or "modelled".
  virtual std::string_view basis() const = 0;
  virtual const Machine& machine() const = 0;
};

}  // namespace headrace
