// SPDX-License-Identifier: Apache-2.0
// The files of sysfs that the kernel's driver has for a device, its queues, groups and engines,
// with its names and formats.
//
// Source: Documentation/ABI/stable/sysfs-driver-dma-idxd and drivers/dma/idxd/sysfs.c of
// Linux 6.16. Attributes that the driver hides because a device lacks something are absent here
// too.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "dsa_sim/driver/answer.h"
#include "dsa_sim/driver/bus.h"

namespace headrace::emulator {

struct Attribute {
  std::string name;
  mode_t mode = 0444;
  std::function<Answer<std::string>()> show;
  // Only where mode has a bit for it. Most can be written only while what they belong to is
  // disabled, which it is not: EPERM.
  std::function<Answer<void>(std::string_view)> store;
};

// Major number of /dev/dsa/wq*; the kernel's is dynamic.
inline constexpr unsigned kMajor = 240;
// Numbers the queues of all devices.
unsigned minor_of(const Bus& bus, const ServedDevice& device, std::size_t queue);

// The bus and the device outlive what is returned.
std::vector<Attribute> device_attributes(ServedDevice& device);
// The files of dsaN/wqN.`queue`, which need not be among those of the set-up: then it was never
// configured.
std::vector<Attribute> queue_attributes(const Bus& bus, ServedDevice& device, std::size_t queue);
std::vector<Attribute> group_attributes(ServedDevice& device, std::size_t group);
std::vector<Attribute> engine_attributes(ServedDevice& device, std::size_t engine);

}  // namespace headrace::emulator
