// SPDX-License-Identifier: Apache-2.0
// The JSON files in machines/, embedded in the library (cmake/presets.cmake).
#pragma once

#include <span>
#include <string_view>

namespace headrace {

struct Preset {
  std::string_view name;
  std::string_view json;
};

// In ascending order of names.
std::span<const Preset> embedded_presets();

}  // namespace headrace
