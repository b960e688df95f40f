// SPDX-License-Identifier: Apache-2.0
// The addresses of another process' page faults, by software events of perf: no counters of a CPU
// are needed. Thread-compatible.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "memory/memory.h"
#include "tier/kernel.h"
#include "tier/process/other_process.h"

namespace headrace {

// Reads records out of a ring of perf. Addresses of samples go to `faults`, major if their event is
// `major_id`. The number of records that the kernel says it lost.
std::uint64_t read_ring(std::span<const std::byte> ring, std::uint64_t& tail, std::uint64_t head,
                        std::uint64_t major_id, std::vector<PageFault>& faults);

class FaultStream {
 public:
  // Listens to each thread of `pid` that it does not listen to yet, and leaves those that ended.
  // Where descriptors or memory do not do for all threads, it listens to as many as they do for.
  // denied, unsupported, exhausted: to none, with why; absent: there are no threads any more.
  Status listen(int pid);
  std::uint64_t take(std::vector<PageFault>& faults);
  // Why it does not listen to all threads, and to how many it does; "": it does.
  const std::string& unheard() const { return unheard_; }

 private:
  struct Thread {
    OwnDescriptor minor;
    OwnDescriptor major;
    std::uint64_t major_id = 0;
    void* ring = nullptr;
    std::size_t bytes = 0;  // with the page before the records
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
