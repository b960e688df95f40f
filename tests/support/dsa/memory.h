// SPDX-License-Identifier: Apache-2.0
// The memory of a client as an emulated device reaches it: by address, with pages that may be
// missing. A PASID selects it on a real machine.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "headrace/result.h"

namespace headrace::emulator {

inline constexpr std::uint64_t kPage = 4096;

// Thread-safe: the engines of a device call it at the same time. Bad addresses are page faults, as
// for a device.
class AddressSpace {
 public:
  virtual ~AddressSpace() = default;

  // Both move all bytes or none. False: a page fault. Requires: all bytes are in one page.
  virtual bool read(std::uint64_t address, std::span<std::byte> to) = 0;
  virtual bool write(std::uint64_t address, std::span<const std::byte> from) = 0;
  // A page request (SPEC 3.13): asks the system for the page of `address`.
  virtual void request(std::uint64_t) {}
};

// The memory of a process, by its pid, through process_vm_readv and process_vm_writev. They need
// the right to trace the process: the same user, subject to ptrace_scope, or CAP_SYS_PTRACE. After
// the process ended everything is a fault.
class ProcessMemory final : public AddressSpace {
 public:
  // `absent_pages_fault`: pages that are not in memory are faults; else the kernel brings them in.
  // Errors: absent: no such process; denied: its memory may not be read.
  static Result<std::unique_ptr<ProcessMemory>> open(pid_t pid, bool absent_pages_fault = true);
  ~ProcessMemory() override;
  ProcessMemory(const ProcessMemory&) = delete;
  ProcessMemory& operator=(const ProcessMemory&) = delete;

  bool read(std::uint64_t address, std::span<std::byte> to) override;
  bool write(std::uint64_t address, std::span<const std::byte> from) override;
  void request(std::uint64_t address) override;

 private:
  ProcessMemory(pid_t pid, int pagemap) : pid_(pid), pagemap_(pagemap) {}

  bool present(std::uint64_t address) const;

  const pid_t pid_;
  const int pagemap_;  // -1: absent pages do not fault
};

}  // namespace headrace::emulator
