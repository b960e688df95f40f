// SPDX-License-Identifier: Apache-2.0
// A store behind a unix socket, in Redis' protocol: SET, GET, and
// INFO, which says how many GETs had to wait for the file (slow_gets). One thread serves all
// clients, and while a value comes from the file it serves others.
#pragma once

#include <string>

#include "headrace/result.h"
#include "workload/kv/store/store.h"

namespace headrace::kv_bench {

// Until `stop` can be read (negative: for ever). io: the socket. A client that breaks the protocol
// is hung up on.
Status serve(Store& store, const std::string& socket, int stop = -1);

}  // namespace headrace::kv_bench
