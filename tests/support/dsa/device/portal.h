// SPDX-License-Identifier: Apache-2.0
// The way into a queue of an emulated device of this process.
#pragma once

#include <cstddef>
#include <memory>

#include "tests/support/dsa/device/device.h"
#include "tests/support/dsa/memory/format.h"

namespace headrace::emulator {

struct PortalOptions {
  // As if through write() on the character device of a kernel since May 2024: no batches, and
  // records must be aligned (INTEL-SA-01084; idxd cdev.c).
  bool character_device = false;
};

// Submits with the instruction for its kind of queue. submit(): of a shared queue as many as it
// takes; of a dedicated one all, and what is too much is dropped; absent: a shared queue is
// disabled or the device halted (a dedicated one does not tell). invalid, as a character device:
// the first descriptor is a batch or has a misaligned record. The device and the space outlive the
// portal. Requires: such a queue.
std::unique_ptr<Portal> open_portal(Device& device, std::size_t queue, AddressSpace& space,
                                    PortalOptions options = {});

}  // namespace headrace::emulator
