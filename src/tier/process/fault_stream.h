// SPDX-License-Identifier: Apache-2.0
// The addresses of another process's page faults, from software events of perf, which need no CPU
// counters. Thread-compatible.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "host/kernel.h"
#include "memory/memory.h"
#include "tier/process/other_process.h"

namespace headrace {

// Reads records from a perf ring. Sample addresses are added to `faults`, as major if their event
// is `major_id`. Returns the number of records that the kernel reports as lost.
std::uint64_t read_ring(std::span<const std::byte> ring, std::uint64_t& tail, std::uint64_t head,
                        std::uint64_t major_id, std::vector<PageFault>& faults);

class FaultStream {
 public:
  // Listens to new threads of `pid` and drops ended ones. If descriptors or memory do not suffice
  // for all threads, listens to as many as possible. Errors: denied, unsupported, exhausted:
  // listens to no thread, with the reason; absent: no threads are left.
  Status listen(int pid);
  std::uint64_t take(std::vector<PageFault>& faults);
  // Why it listens to only some threads, and to how many; "": it listens to all.
  const std::string& unheard() const { return unheard_; }

 private:
  struct Thread {
    OwnDescriptor minor;
    OwnDescriptor major;
    std::uint64_t major_id = 0;
    void* ring = nullptr;
    std::size_t bytes = 0;  // including the page before the records
    Thread() = default;
    Thread(const Thread&) = delete;
    Thread& operator=(const Thread&) = delete;
    ~Thread();
  };
  Status open(Thread& thread, pid_t id, std::size_t bytes);

  std::map<pid_t, Thread> threads_;
  std::string unheard_;
};

}  // namespace headrace
