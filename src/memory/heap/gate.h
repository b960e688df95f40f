// SPDX-License-Identifier: Apache-2.0
// A lock around every code path of the heaps that takes a lock, including those of oneTBB. fork()
// waits until no thread is inside; the child then finds all structures whole and unlocked.
//
// Only paths that leave the thread's own cache enter the gate, so the usual malloc and free do not
// pay for it. A thread that is inside may enter again. Thread-safe.
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
