// SPDX-License-Identifier: Apache-2.0
// Redis' protocol, by hiredis.
#pragma once

#include <memory>
#include <string>

#include "benchmarks/keyvalue/live/connection.h"

namespace headrace::kv_bench {

// As Connection::open.
Result<std::unique_ptr<Connection>> open_redis(const std::string& socket);

}  // namespace headrace::kv_bench
