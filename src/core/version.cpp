#include "headrace/version.h"

namespace headrace {

std::string_view version() { return HEADRACE_VERSION; }

}  // namespace headrace
