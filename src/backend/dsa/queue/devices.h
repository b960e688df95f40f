// SPDX-License-Identifier: Apache-2.0
// The DSA devices of a host and their work queues, as the kernel's idxd driver shows them in sysfs.
//
// Plain reading of files, no library. What is missing or makes no sense makes a queue unusable,
// with the reason; it never stops the discovery. Source:
// Documentation/ABI/stable/sysfs-driver-dma-idxd.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "backend/dsa/queue/descriptor.h"

namespace headrace::dsa {

// Where the files are; a test, and headrace-dsa-sim, have them elsewhere.
struct Roots {
  std::filesystem::path sysfs = "/sys/bus/dsa/devices";
  std::filesystem::path dev = "/dev/dsa";

  // Those of HEADRACE_DSA_SYSFS and HEADRACE_DSA_DEV where they are set.
  static Roots from_environment();
};

struct WorkQueue {
  std::string name;             // "wq0.0"
  std::filesystem::path file;   // its character device
  bool shared = true;           // else dedicated: one process has it
  std::uint32_t size = 0;       // descriptors
  std::uint32_t threshold = 0;  // shared: full for a process from so many on
  std::uint64_t max_transfer = 0;
  std::uint32_t max_batch = 0;
  bool block_on_fault = false;
  Opcodes operations;
  std::string unusable;  // why not; empty: it is enabled, for users
  std::string remedy;    // then what to do

  // What one process may have in flight in it.
  std::uint32_t credits() const { return shared ? threshold : size; }
};

struct Device {
  std::string name;           // "dsa0"
  std::uint32_t version = 0;  // 0x100: 1.0
  GeneralCapabilities capabilities;
  Opcodes operations;
  std::optional<unsigned> node;  // NUMA node
  std::uint32_t engines = 0;     // in groups
  bool shared_memory = false;    // pasid_enabled: user addresses mean something to it
  std::string unusable;          // why not; empty: enabled
  std::string remedy;            // then what to do
  std::vector<WorkQueue> queues;
};

// All of them, by number; empty where there is no such directory.
std::vector<Device> find_devices(const Roots& roots);

// Whether the queue's file is one. Where it is not, as below headrace-dsa-sim, wherever that is
// mounted, software stands in for the device, and nothing timed there is a fact about hardware.
bool is_character_device(const WorkQueue& queue);

// "00000000,...,001f03ff" (a bitmap, highest first) or "0x1f03ff 0x0 0x0 0x0" (words, lowest
// first), as kernels print it.
std::optional<Opcodes> parse_opcodes(const std::string& text);

}  // namespace headrace::dsa
