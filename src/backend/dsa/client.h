// SPDX-License-Identifier: Apache-2.0
// Everything a DSA device can do besides copying for a Mover: programs of operations, run to their
// end by the queues of one device, and by the calling core where the device cannot or will not.
//
// Its public face is DsaClient, whose operations are made of spans; here they are numbers, which
// nobody checked. Thread-safe: several threads may run programs at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/dsa/operation/operation.h"
#include "backend/dsa/queue/devices.h"
#include "backend/dsa/queue/open_device.h"
#include "core/fork.h"
#include "headrace/dsa_operations.h"
#include "headrace/result.h"

namespace headrace::dsa {

// invalid: an operation that makes no sense by itself, whoever would do it.
Status check(const Operation& operation);

class Client {
 public:
  // Without a device: the core does everything.
  Client() = default;
  // As OpenDevice::open.
  static Result<std::unique_ptr<Client>> open(const Device& device, const QueueOptions& options);
  // What is in flight has ended: run() waits for it.
  ~Client();

  // Runs them and waits; an Outcome or an Error for each, with the very first difference that a
  // comparison found. A fenced operation begins when all before it are done; the others in any
  // order, so they must not depend on each other. After one failed the next fenced one and all
  // behind it are not run (cancelled). Failures: invalid, an operand is not this process's memory,
  // or the operation makes no sense, for which none of the program is run; timed_out or io, the
  // device lost or spoilt an operation that writes to what it reads, and what it wrote is
  // undefined.
  std::vector<Result<Outcome>> run(std::span<const Operation> program);
  Result<Outcome> run(const Operation& operation);

  const OpenDevice& device() const { return device_; }
  DsaStats stats() const;

 private:
  struct Stage;

  Client(const GeneralCapabilities& capabilities, OpenDevice device);

  bool can(const Operation& operation) const;
  void run_stage(std::span<const Operation> operations, std::span<Result<Outcome>> results);
  void poll();
  Result<Outcome> finish_here(PartialOperation work);

  // Immutable after construction.
  const GeneralCapabilities capabilities_;
  OpenDevice device_;      // none: without a device
  const Opcodes opcodes_;  // then none either
  // In a forked child the core does everything.
  const Origin origin_;

  std::atomic<std::uint64_t> by_device_{0};
  std::atomic<std::uint64_t> unable_{0};
  std::atomic<std::uint64_t> given_back_{0};
};

}  // namespace headrace::dsa
