// SPDX-License-Identifier: Apache-2.0
#include "headrace/version.h"

namespace headrace {

std::string_view version() { return HEADRACE_VERSION; }

}  // namespace headrace
