// SPDX-License-Identifier: Apache-2.0
// The storage device of a path.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "headrace/machine.h"

namespace headrace {

struct StorageFacts {
  std::string name;    // "vda", or "overlay at /" if no device is visible
  std::string reason;  // how it was found
  std::optional<Bytes> capacity;
  std::string capacity_source;
  std::string path;              // a directory on it
  std::filesystem::path device;  // its disk in sysfs; empty if no device is visible
};

// Finds the device. Other unknown facts are stated in words. Errors: absent, denied: the path
// cannot be examined.
Result<StorageFacts> find_storage(const std::filesystem::path& path,
                                  const std::filesystem::path& sysfs,
                                  const std::filesystem::path& procfs);

}  // namespace headrace
