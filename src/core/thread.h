// The library's own threads, which serve and are not the user's. Thread-safe.
#pragma once

#include <functional>
#include <thread>

#include "headrace/result.h"

namespace headrace {

// A thread that takes no signals, so that handlers (Ctrl-C) run in the user's threads; that may run
// where the process may (its first thread), even if the thread that happens to start it is pinned;
// and that ps and top call `name` (at most 15 characters). exhausted: no thread is to be had.
Result<std::thread> start_thread(const char* name, std::function<void()> body);

}  // namespace headrace
