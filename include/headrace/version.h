// SPDX-License-Identifier: Apache-2.0
// The version of this library. Thread-safe.
#pragma once

#include <string_view>

#include "headrace/export.h"

namespace HEADRACE_API headrace {

// The version, "0.1.0", and the schema version of all JSON documents.
std::string_view version();
inline constexpr int kSchemaVersion = 1;

}  // namespace HEADRACE_API headrace
