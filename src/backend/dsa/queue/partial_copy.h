// SPDX-License-Identifier: Apache-2.0
// One copy on its way through devices: cut to the size that a queue takes, and resumed after a page
// fault.
//
// Pure: addresses are numbers here, and no memory is accessed through them. Sources: SPEC 3.6, 7.3
// and 8.3; Intel's own dsa_prep.c (idxd-config).
#pragma once

#include <cstdint>

#include "backend/dsa/queue/descriptor.h"

namespace headrace::dsa {

// A copy to make. Addresses are the submitting process's. The ranges must not overlap.
struct Copy {
  std::uint64_t source = 0;
  std::uint64_t destination = 0;
  std::uint64_t bytes = 0;
  bool to_cache = false;  // leave the copy in the CPU's cache; only if the device can

  friend bool operator==(const Copy&, const Copy&) = default;
};

// The step that follows a completion record of a copy.
enum class Next : std::uint8_t {
  done,
  more,    // submit next()
  touch,   // bring in the pages of rest(), then submit next()
  failed,  // this device cannot do it
};

// Thread-compatible.
class PartialCopy {
 public:
  explicit PartialCopy(const Copy& copy = {});

  // Returns the descriptor to submit now, without the address of its record. `most` is the queue's
  // limit in bytes.
  Descriptor next(std::uint64_t most);
  // Takes the answer to the last next().
  Next absorb(const Record& record);

  // The part that no device has confirmed. Some of it may be written already; writing it again is
  // right.
  const Copy& rest() const { return rest_; }
  // Whether there were more faults than touching its pages can explain.
  bool hopeless() const { return faults_ > most_faults_; }

 private:
  Next pass(std::uint64_t bytes);

  Copy rest_;
  std::uint64_t part_ = 0;  // bytes of the last next()
  std::uint32_t faults_ = 0;
  std::uint32_t most_faults_ = 0;
};

}  // namespace headrace::dsa
