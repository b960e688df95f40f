// SPDX-License-Identifier: Apache-2.0
// What an emulated device is made of: capabilities, groups of engines, work queues.
//
// Named as in sysfs (Documentation/ABI/stable/sysfs-driver-dma-idxd). Plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/result.h"
#include "tests/support/dsa/memory/format.h"

namespace headrace::emulator {

// The engines of a group take descriptors from all of its queues.
struct GroupSetup {
  unsigned engines = 1;
};

struct QueueSetup {
  bool shared = true;       // else dedicated
  unsigned size = 16;       // descriptors
  unsigned threshold = 16;  // shared: full for ENQCMD from this fill on
  unsigned group = 0;
  unsigned priority = 10;  // 1 to 15
  // Whether descriptors may have the flag "block on fault", and whether the device asks the system
  // for missing pages of records and descriptor lists (page requests; SPEC 3.13).
  bool block_on_fault = true;
  std::uint64_t max_transfer = std::uint64_t{1} << 31;
  std::uint32_t max_batch = 1024;
  std::optional<Opcodes> op_config;  // nothing: all operations of the device
  // False: batches are refused, as the kernel does where user_submission_safe is not set.
  bool batches_allowed = true;
};

struct DeviceSetup {
  std::string name = "dsa0";
  std::uint32_t version = 0x100;
  GeneralCapabilities gen_cap;
  Opcodes op_cap;
  unsigned numa_node = 0;
  unsigned max_groups = 4;
  unsigned max_engines = 4;
  unsigned max_queues = 8;
  unsigned max_queues_size = 128;  // descriptors in all queues together
  std::vector<GroupSetup> groups = {GroupSetup{}};
  std::vector<QueueSetup> queues;
  // Whether "addresses are multiples of 8" holds for the delta record of create and apply delta
  // too, the strict reading. Then an operation that is resumed behind a record of odd length is
  // refused.
  bool delta_records_aligned = false;
};

// A Sapphire Rapids device as `accel-config list` shows it (idxd-config issue 40), without the four
// DIF operations, which the emulator does not execute. One group with one engine and one shared
// queue of 128 descriptors (the set-up of Fürst 2024, docs/design/routes.md).
DeviceSetup sapphire_rapids();
// The same with what SPEC 2.0 added (drain readback, 16-byte fill, 64-bit CRC, batch continuation,
// translation fetch). No listing of a real one is public: which of it a product has is a guess.
DeviceSetup dsa2();
// The same with batches of one (SPEC 3.0). Its operations on lists of addresses are absent: their
// format is in no public source that could be read.
DeviceSetup dsa3();
// "sapphire_rapids", "dsa2" or "dsa3"; absent: none of them.
Result<DeviceSetup> find_setup(std::string_view name);

// invalid: the set-up is impossible, with what to change.
Status check(const DeviceSetup& setup);

}  // namespace headrace::emulator
