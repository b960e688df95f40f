// SPDX-License-Identifier: Apache-2.0
// Which storage device is behind a path.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "headrace/machine.h"

namespace headrace {

struct StorageFacts {
  std::string name;    // "vda", or "overlay at /" where no device shows
  std::string reason;  // how it was found
  std::optional<Bytes> capacity;
  std::string capacity_source;
  std::string path;              // a directory on it
  std::filesystem::path device;  // its disk in sysfs; empty where no device shows
};

// absent or denied: the path cannot be looked at. Everything else that is unknown is said in words.
Result<StorageFacts> find_storage(const std::filesystem::path& path,
                                  const std::filesystem::path& sysfs,
                                  const std::filesystem::path& procfs);

}  // namespace headrace
