// SPDX-License-Identifier: Apache-2.0
// The fake machine and its faults: the environment variable HEADRACE_FAKE_CUDA, a list
// `key=value,key=value` (README.md lists the keys). cuInit reads it once.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <string>
#include <string_view>

namespace headrace::cuda::fake {

// The device's access to host memory and managed memory.
enum class Paradigm { ats, hmm, managed, limited };

struct Settings {
  unsigned devices = 1;
  std::size_t memory = 256UL << 20;  // of each device
  Paradigm paradigm = Paradigm::managed;
  unsigned engines = 2;  // copy engines of each device
  unsigned sms = 132;
  std::size_t l2 = 1UL << 20;          // size of each device's cache
  unsigned compute = 90;               // compute capability, 10 * major + minor
  int host_node = 0;                   // nearest node of the host; -1: unknown
  int numa_node = -1;                  // node of the device's memory; -1: none
  double bandwidth = 0;                // bytes per second of an engine; 0: as fast as possible
  std::chrono::nanoseconds latency{};  // of each operation
  std::size_t register_limit = 512UL << 30;  // a single registration of this size fails
  std::uint64_t seed = 1;
  double fail = 0;                  // probability that a call fails for lack of memory
  std::uint64_t lost_after = 0;     // operations until the context is lost; 0: never
  std::uint64_t stall_after = 0;    // operations until all stop; 0: never
  std::size_t descriptor_cost = 0;  // nanoseconds of CPU for a copy of a batch
  std::size_t call_cost = 0;        // for a single copy
  std::size_t launch_cost = 0;      // for a launch of a kernel
  std::size_t callback_cost = 0;    // for a host function in a stream
  double kernel_bandwidth = 0;      // of kernels beyond their device's memory; 0: as `bandwidth`
  unsigned data = 1;                // 0: copies between host and device only take their time
  unsigned capturing = 0;           // 1: a thread captures a graph, in PyTorch's mode
  unsigned mig = 0;                 // 1: the devices are instances (MIG) of one GPU
};

// The error says in one line what is wrong.
std::expected<Settings, std::string> parse_settings(std::string_view text);

}  // namespace headrace::cuda::fake
