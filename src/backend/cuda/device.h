// SPDX-License-Identifier: Apache-2.0
// The GPUs that this process sees, as their driver describes them. Thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/cuda/driver.h"
#include "headrace/units.h"

namespace headrace::cuda {

// The name of a software GPU begins with this (tests/support/fake_cuda). No other mark exists.
inline constexpr std::string_view kEmulatedName = "Headrace fake GPU";

struct Device {
  CUdevice ordinal = 0;  // in this process, by CUDA_VISIBLE_DEVICES
  std::string name;      // "NVIDIA H200", "NVIDIA A100-SXM4-40GB MIG 1g.5gb"
  std::string pci;       // "0000:17:00.0", as sysfs writes it
  std::string uuid;      // 32 hexadecimal digits; empty if the driver does not say
  Bytes capacity;
  unsigned copy_engines = 0;
  std::optional<unsigned> host_node;  // the host's nearest NUMA node
  std::optional<unsigned> numa_node;  // the node that its own memory is, if it is one
  bool pageable_access = false;       // it reaches memory from malloc()
  bool host_page_tables = false;      // it does so by the page tables of the CPUs
  bool registered_as_is = false;      // it reaches registered memory by the host's addresses
  bool concurrent_managed = false;    // managed memory while CPUs use it too
  bool emulated = false;

  // Whether this GPU is the one that a machine describes. Compares the UUIDs. If either has no
  // UUID, compares the PCI addresses, which instances of one GPU (MIG) share.
  bool is(std::string_view of_uuid, std::string_view of_pci) const {
    return of_uuid.empty() || uuid.empty() ? pci == of_pci : uuid == of_uuid;
  }
};

// All GPUs that answer, by ordinal; the first error if none does.
Result<std::vector<Device>> find_devices(const Driver& driver);

// Finds the GPU that a machine describes by its UUID or, if that is empty, by its PCI address.
// `name` is for the message. Errors: absent: this process does not see the GPU.
Result<Device> find_device(const Driver& driver, std::string_view uuid, std::string_view pci,
                           std::string_view name);

}  // namespace headrace::cuda
