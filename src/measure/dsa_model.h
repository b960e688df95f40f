// DSA devices that take modelled time: software devices (backend/dsa_device) on a clock that is set
// to whatever happens next, and threads that take time to hand descriptors over. No bytes move and
// no time passes, so 1 GiB costs what 1 KiB does, and the same run gives the same times.
//
// What the constants rest on, what is fitted to what, and what the model cannot say:
// docs/design/dsa-rates.md. Thread-compatible.
#pragma once

#include "backend/dsa_device/dsa_device.h"
#include "measure/dsa_stand.h"

namespace headrace {

struct DsaCosts {
  // The limit of one device: 31.17 GB/s (intel/DML issue 25: 16 KiB, dedicated queue) lies between
  // the ~30 GB/s of Kuper et al., ASPLOS'24, and the "close to 30 GiB/s" of Fuerst 2024, 3.2.1.
  // An engine alone reaches it.
  BytesPerSecond device{31.17e9};
  // A thread's time for one ENQCMD, which waits for the device's answer: shared queues are slower
  // from 1 to 8 KB and no longer above (Kuper et al., as Fuerst 2024, 3.2.1, cites it), so it is
  // what 8 KiB take.
  Nanoseconds enqcmd{263};
  // One MOVDIR64B, which waits for nothing: dedicated queues are not slower even at 1 KB, so it is
  // at most what 1 KiB takes.
  Nanoseconds movdir64b{33};
  // A write() beside the ENQCMDs in it. Assumed; published is only that the kernel's way is "within
  // the noise" of the mapped portal for most uses (Linux commit 6827738dc684).
  Nanoseconds system_call{100};
  // From a descriptor's arrival to its first data, and from its last to the core that waits: with
  // ENQCMD the 0.86 us that fit intel/DTO's README (DeviceRates).
  Nanoseconds start_up{597};
};

// What was observed at least out of a DDR node of a Xeon Max, where the computed 76.8 GB/s are
// less: 96 GiB/s (Fuerst 2024, 3.2.3; it could not explain it either).
inline constexpr BytesPerSecond kObservedFromDdr{96.0 * 1024 * 1024 * 1024};

class DsaModel final : public DsaStand {
 public:
  // The dsa engines of `machine`, each one device; its memories are as fast as the machine says.
  explicit DsaModel(Machine machine, const DsaCosts& costs = {});

  // One time for any number of rounds.
  Result<std::vector<DsaTimes>> run(const std::vector<DsaThread>& threads, const DsaShape& shape,
                                    unsigned rounds) override;
  std::string_view basis() const override { return "modelled"; }
  const Machine& machine() const override { return machine_; }

 private:
  const Machine machine_;
  const DsaCosts costs_;
};

}  // namespace headrace
