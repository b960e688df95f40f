// SPDX-License-Identifier: Apache-2.0
// A model of the speed of DSA devices: the emulated devices (tests/support/dsa/device) on a virtual
// clock, which is set to the next event, and threads that take time to submit descriptors. No bytes
// move and no real time passes, so 1 GiB costs what 1 KiB does, and the same run gives the same
// times.
//
// Where the constants come from, which are fitted to what, and what the model cannot say:
// docs/design/dsa-rates.md. Thread-compatible.
#pragma once

#include "measure/experiments/dsa/dsa.h"
#include "tests/support/dsa/dsa.h"

namespace headrace::dsa_rates {

using namespace experiment_dsa;

struct DsaCosts {
  // The limit of one device: 31.17 GB/s (intel/DML issue 25: 16 KiB, dedicated queue) lies between
  // the ~30 GB/s of Kuper et al., ASPLOS'24, and the "close to 30 GiB/s" of Fürst 2024, 3.2.1.
  // An engine alone reaches it.
  BytesPerSecond device{31.17e9};
  // A thread's time for one ENQCMD, which waits for the device's answer: shared queues are slower
  // from 1 to 8 KB and no longer above (Kuper et al., as Fürst 2024, 3.2.1, cites it), so it is
  // what 8 KiB take.
  Nanoseconds enqcmd{263};
  // One MOVDIR64B, which waits for nothing: dedicated queues are not slower even at 1 KB, so it is
  // at most what 1 KiB takes.
  Nanoseconds movdir64b{33};
  // A system call write(), without the ENQCMDs in it. Assumed; published is only that the kernel's
  // way is "within the noise" of the mapped portal for most uses (Linux commit 6827738dc684).
  Nanoseconds system_call{100};
  // From a descriptor's arrival to its first data, and from its last to the core that waits: with
  // ENQCMD the 0.86 us that fit intel/DTO's README (DeviceRates).
  Nanoseconds start_up{597};
  // Each way between neighbouring tiles, where the machine tells no limit. Fitted to one point,
  // which has the crossing of most: to node 11, diagonally within the socket, brute force is 18
  // GiB/s faster than smart, so smart, of whose data 3/4 cross the same boundary, reaches 78.
  BytesPerSecond mesh{58.5 * 1024 * 1024 * 1024};
};

// The bandwidth of reads from a DDR node of a Xeon Max: at least the 96 GiB/s that were observed
// (Fürst 2024, 3.2.3, which could not explain why it exceeds the 76.8 GB/s computed from the two
// DIMMs). For nodes with that rating; assumed for DRAM nodes of which no bandwidth is known.
inline constexpr BytesPerSecond kRatedOfDdr{76.8e9};
inline constexpr BytesPerSecond kObservedFromDdr{96.0 * 1024 * 1024 * 1024};

class DsaModel final : public DsaTarget {
 public:
  // Models the dsa engines of `machine`, each a device; memories and links are as fast as `machine`
  // says.
  explicit DsaModel(Machine machine, const DsaCosts& costs = {});

  Result<std::unique_ptr<DsaRun>> prepare(const std::vector<DsaThread>& threads,
                                          const DsaShape& shape,
                                          instruments::BufferPool& buffers) const override;
  WithStream with_stream() const override { return {}; }
  Basis basis() const override { return Basis::modelled; }
  const Machine& machine() const override { return machine_; }
  std::vector<EngineId> engines() const override;

  // Runs the threads on the virtual clock: the same times for the same threads. What prepare()
  // returns does this.
  Result<DsaTimes> run(const std::vector<DsaThread>& threads, const DsaShape& shape) const;

 private:
  const Machine machine_;
  const DsaCosts costs_;
};

}  // namespace headrace::dsa_rates
