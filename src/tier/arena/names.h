// SPDX-License-Identifier: Apache-2.0
// The valid names of arenas.
#pragma once

#include <string_view>

namespace headrace {

// True for 1 to 64 letters, digits or any of _ . - / and :
bool is_arena_name(std::string_view name);

}  // namespace headrace
