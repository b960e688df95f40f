// SPDX-License-Identifier: Apache-2.0
// What the fake machine is and what goes wrong on it: the environment variable HEADRACE_FAKE_CUDA,
// a list `key=value,key=value` (README.md has the keys). Read once, by cuInit.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <string>
#include <string_view>

namespace headrace::cuda::fake {

// How the device reaches memory of the host and managed memory.
enum class Paradigm { ats, hmm, managed, limited };

struct Settings {
  unsigned devices = 1;
  std::size_t memory = 256UL << 20;  // of each device
  Paradigm paradigm = Paradigm::managed;
  unsigned engines = 2;  // copy engines of each device
  unsigned sms = 132;
  std::size_t l2 = 1UL << 20;                // cache of each device
  unsigned compute = 90;                     // compute capability, 10 * major + minor
  int host_node = 0;                         // nearest node of the host; -1: not known
  int numa_node = -1;                        // that the device's memory is; -1: none
  std::size_t page = 64UL << 10;             // of managed memory
  unsigned access_threshold = 0;             // remote accesses that make a page migrate; 0: none do
  double bandwidth = 0;                      // bytes per second of an engine; 0: as fast as it goes
  std::chrono::nanoseconds latency{};        // of each operation
  std::size_t register_limit = 512UL << 30;  // a single registration so large fails
  std::uint64_t seed = 1;
  double fail = 0;                  // chance that a call fails, for want of memory
  std::uint64_t lost_after = 0;     // operations until the context is lost; 0: never
  unsigned lost_error = 700;        // with this result
  std::uint64_t stall_after = 0;    // operations until all stand still; 0: never
  std::size_t descriptor_cost = 0;  // nanoseconds of CPU that a copy of a batch costs
  std::size_t call_cost = 0;        // the same of a single copy,
  std::size_t launch_cost = 0;      // of a launch of a kernel,
  std::size_t callback_cost = 0;    // and of a host function that is put in a stream
  double kernel_bandwidth = 0;      // of kernels beyond their device's memory; 0: as `bandwidth`
  unsigned data = 1;                // 0: copies between host and device only take their time
  unsigned capturing = 0;           // 1: a thread captures a graph, in the mode that PyTorch uses
  unsigned mig = 0;                 // 1: the devices are instances (MIG) of one GPU
};

// Says what is wrong with it, in one line.
std::expected<Settings, std::string> parse_settings(std::string_view text);

}  // namespace headrace::cuda::fake
