# SPDX-License-Identifier: Apache-2.0
# Builds machines/*.json into the library, so that presets are there wherever it goes: installed,
# in a wheel, or run from the build tree.

file(GLOB presets CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/machines/*.json)
list(SORT presets)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${presets})

set(entries "")
foreach(preset IN LISTS presets)
  get_filename_component(name ${preset} NAME_WE)
  file(READ ${preset} json)
  string(APPEND entries "    {\"${name}\",
     R\"json(${json})json\"},\n")
endforeach()

file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/generated/presets.cpp CONTENT
"// Made from machines/*.json by cmake/presets.cmake.
#include \"topology/presets.h\"

#include <array>

// A machine with many rows is longer than the 64 KiB that every compiler must take.
#pragma GCC diagnostic ignored \"-Woverlength-strings\"

namespace headrace {

std::span<const Preset> embedded_presets() {
  static constexpr auto kPresets = std::to_array<Preset>({
${entries}  });
  return kPresets;
}

}  // namespace headrace
")
target_sources(headrace_topology_objects PRIVATE ${PROJECT_BINARY_DIR}/generated/presets.cpp)
