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

// How the name of a GPU made of software begins (tests/support/fake_cuda). Nothing else marks one.
inline constexpr std::string_view kEmulatedName = "Headrace fake GPU";

struct Device {
  CUdevice ordinal = 0;  // in this process, by CUDA_VISIBLE_DEVICES
  std::string name;      // "NVIDIA H200", "NVIDIA A100-SXM4-40GB MIG 1g.5gb"
  std::string pci;       // "0000:17:00.0", as sysfs writes it
  std::string uuid;      // 32 hexadecimal digits; empty where the driver does not say
  Bytes capacity;
  unsigned copy_engines = 0;
  std::optional<unsigned> host_node;  // the host's nearest NUMA node
  std::optional<unsigned> numa_node;  // which its own memory is, if it is one
  bool pageable_access = false;       // it reaches memory that malloc() gave
  bool host_page_tables = false;      // by the page tables of the CPUs
  bool registered_as_is = false;      // it reaches registered memory by the host's own addresses
  bool concurrent_managed = false;    // managed memory while CPUs use it too
  bool emulated = false;

  // Whether a machine that describes a GPU so means this one: by the uuid, or where either has none
  // by the PCI address, which instances of one GPU (MIG) have in common.
  bool is(std::string_view of_uuid, std::string_view of_pci) const {
    return of_uuid.empty() || uuid.empty() ? pci == of_pci : uuid == of_uuid;
  }
};

// All of them that answer, by ordinal; the first error where none does.
Result<std::vector<Device>> find_devices(const Driver& driver);

// The GPU that a machine describes by its uuid, or where that is empty by its PCI address. absent:
// this process does not see it; `name` tells which in the message.
Result<Device> find_device(const Driver& driver, std::string_view uuid, std::string_view pci,
                           std::string_view name);

}  // namespace headrace::cuda
