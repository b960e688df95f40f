// SPDX-License-Identifier: Apache-2.0
// A store behind a unix socket, in Redis' protocol: SET, GET, and INFO, which reports how many GETs
// waited for the file (slow_gets). One thread serves all clients, and serves others while a value
// is read from the file.
#pragma once

#include <string>

#include "benchmarks/keyvalue/store/store.h"
#include "headrace/result.h"

namespace headrace::kv_bench {

// Serves until `stop` becomes readable (negative: for ever). Closes the connection of a client that
// breaks the protocol. Errors: io: the socket.
Status serve(Store& store, const std::string& socket, int stop = -1);

}  // namespace headrace::kv_bench
