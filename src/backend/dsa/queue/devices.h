// SPDX-License-Identifier: Apache-2.0
// The DSA devices of a host and their work queues, as the kernel's idxd driver shows them in sysfs.
//
// Reads plain files, without a library. A file that is missing or makes no sense makes the queue
// unusable, with the reason; it never stops the discovery. Source:
// Documentation/ABI/stable/sysfs-driver-dma-idxd.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "backend/dsa/queue/descriptor.h"

namespace headrace::dsa {

// The places of the files. A test and headrace-dsa-sim set other places.
struct Roots {
  std::filesystem::path sysfs = "/sys/bus/dsa/devices";
  std::filesystem::path dev = "/dev/dsa";

  // Takes HEADRACE_DSA_SYSFS and HEADRACE_DSA_DEV, if they are set.
  static Roots from_environment();
};

struct WorkQueue {
  std::string name;             // "wq0.0"
  std::filesystem::path file;   // its character device
  bool shared = true;           // else dedicated: one process has it
  std::uint32_t size = 0;       // descriptors
  std::uint32_t threshold = 0;  // shared: full for a process from this number on
  std::uint64_t max_transfer = 0;
  std::uint32_t max_batch = 0;
  Opcodes operations;
  std::string unusable;  // the reason; empty: it is enabled, for users
  std::string remedy;    // the remedy in that case

  // The limit of descriptors that one process may have in flight in the queue.
  std::uint32_t credits() const { return shared ? threshold : size; }
};

struct Device {
  std::string name;            // "dsa0"
  bool cache_control = false;  // GENCAP: it can leave a copy in the CPU's cache
  Opcodes operations;
  std::uint32_t engines = 0;  // those in groups
  std::string unusable;       // the reason; empty: enabled
  std::string remedy;         // the remedy in that case
  std::vector<WorkQueue> queues;
};

// Returns all devices, by number; empty if the directory does not exist.
std::vector<Device> find_devices(const Roots& roots);

// Whether the queue's file is a character device. If not, software replaces the device, and nothing
// timed there is a fact about hardware. This also holds below headrace-dsa-sim, wherever it is
// mounted.
bool is_character_device(const WorkQueue& queue);

// Parses the forms that kernels print: "00000000,...,001f03ff" (a bitmap, highest first) or
// "0x1f03ff 0x0 0x0 0x0" (words, lowest first).
std::optional<Opcodes> parse_opcodes(const std::string& text);

}  // namespace headrace::dsa
