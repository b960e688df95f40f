// SPDX-License-Identifier: Apache-2.0
// The capabilities, engines and work queues of an emulated device. Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/dsa/dsa.h"

namespace headrace::emulator {

using dsa::Code;
using dsa::Descriptor;
using dsa::Opcode;
using dsa::Opcodes;
using dsa::Record;
namespace flag = dsa::flag;

// Limits of a Sapphire Rapids device (accel-config list in idxd-config issue 40).
inline constexpr unsigned kMaxEngines = 4;
inline constexpr unsigned kMaxQueues = 8;
inline constexpr unsigned kMaxQueuesSize = 128;  // descriptors in all queues together
inline constexpr std::uint32_t kMaxBatch = 1024;
inline constexpr std::uint64_t kMaxTransfer = std::uint64_t{1} << 31;
// Its register GENCAP (0x40915f0107), without block on fault and readback.
inline constexpr std::uint64_t kGeneralCapabilities = 0x40915f0006;

struct QueueSetup {
  bool shared = true;       // else dedicated
  unsigned size = 16;       // descriptors
  unsigned threshold = 16;  // shared: full for ENQCMD from this fill on
  std::uint64_t max_transfer = kMaxTransfer;
  // False: batches are refused, as by the kernel where user_submission_safe is not set.
  bool batches_allowed = true;

  Opcodes operations() const {
    Opcodes all;
    all.set(Opcode::noop);
    all.set(Opcode::memmove);
    if (batches_allowed) all.set(Opcode::batch);
    return all;
  }
};

// One group: each engine takes descriptors from all queues.
struct DeviceSetup {
  std::string name = "dsa0";
  std::uint32_t version = 0x100;
  unsigned numa_node = 0;
  unsigned engines = 1;
  std::vector<QueueSetup> queues;
};

// A Sapphire Rapids device without what the emulator lacks: other operations than noop, batch and
// memmove, block on fault, and readback. One engine and one shared queue of 128 descriptors (the
// set-up of Fürst 2024, docs/design/routes.md).
inline DeviceSetup sapphire_rapids() { return {.queues = {{.size = 128, .threshold = 128}}}; }
// The same in version 2, whose queues take batches also by write().
inline DeviceSetup dsa2() {
  DeviceSetup setup = sapphire_rapids();
  setup.version = 0x200;
  return setup;
}

}  // namespace headrace::emulator
