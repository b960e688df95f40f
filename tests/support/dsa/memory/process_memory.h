// SPDX-License-Identifier: Apache-2.0
// The memory of another process, by its pid: what an emulated device outside the client's process
// sees of it.
//
// By process_vm_readv and process_vm_writev, which need the right to trace the process (the same
// user, subject to ptrace_scope; or CAP_SYS_PTRACE). They do not crash on bad addresses.
#pragma once

#include <sys/types.h>

#include <memory>

#include "headrace/result.h"
#include "tests/support/dsa/memory/address_space.h"

namespace headrace::emulator {

struct ProcessMemoryOptions {
  // Pages that are not in memory are faults until resolved, as without page requests on a real
  // machine; else the kernel brings them in unseen. Needs /proc/PID/pagemap.
  bool absent_pages_fault = true;
};

// Thread-safe. After the process ended everything is a fault.
class ProcessMemory final : public AddressSpace {
 public:
  // absent: no such process; denied: its memory may not be read.
  static Result<std::unique_ptr<ProcessMemory>> open(pid_t pid, ProcessMemoryOptions options = {});
  ~ProcessMemory() override;
  ProcessMemory(const ProcessMemory&) = delete;
  ProcessMemory& operator=(const ProcessMemory&) = delete;

  std::size_t read(std::uint64_t address, std::span<std::byte> to) override;
  std::size_t write(std::uint64_t address, std::span<const std::byte> from) override;
  // For Touch::write, whether the process may write there is known only by writing: the mappings
  // tell (/proc/PID/maps), and a byte is read.
  std::size_t reach(std::uint64_t address, std::size_t size, Touch touch) override;
  bool resolve(std::uint64_t address, Touch touch) override;

 private:
  ProcessMemory(pid_t pid, int pagemap) : pid_(pid), pagemap_(pagemap) {}

  std::size_t present(std::uint64_t address, std::size_t size) const;
  bool may_write(std::uint64_t address) const;

  // Immutable after construction.
  const pid_t pid_;
  const int pagemap_;  // -1: absent pages are brought in unseen
};

}  // namespace headrace::emulator
