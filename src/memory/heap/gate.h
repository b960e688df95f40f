// SPDX-License-Identifier: Apache-2.0
// The way into the heaps for whatever takes a lock there, oneTBB's own included: a fork() waits
// until no thread is inside, so that a child finds all of them whole and free.
//
// Taken by the paths that leave a thread's own cache, so malloc and free do not pay for it. May be
// entered again by the thread that is inside. Thread-safe.
#pragma once

namespace headrace {

class HeapGate {
 public:
  HeapGate();
  ~HeapGate();
  HeapGate(const HeapGate&) = delete;
  HeapGate& operator=(const HeapGate&) = delete;
};

}  // namespace headrace
