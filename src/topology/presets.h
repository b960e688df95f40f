// SPDX-License-Identifier: Apache-2.0
// The JSON files of machines/, built into the library (cmake/presets.cmake).
#pragma once

#include <span>
#include <string_view>

namespace headrace {

struct Preset {
  std::string_view name;
  std::string_view json;
};

// Ascending names.
std::span<const Preset> embedded_presets();

}  // namespace headrace
