// SPDX-License-Identifier: Apache-2.0
// The access to one work queue of a DSA device: its mapped portal, its character device, or an
// emulated device.
//
// A portal only submits descriptors; the completion record reports the execution. Some records are
// never written: a full dedicated queue drops a descriptor silently. Therefore the submitter counts
// its descriptors in flight. Thread-safe.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "backend/dsa/queue/descriptor.h"
#include "headrace/result.h"

namespace headrace::dsa {

class Portal {
 public:
  virtual ~Portal() = default;

  // Submits the first n in order, n <= size; fewer when a shared queue is full. Memory that a
  // descriptor refers to (lists, records set to 0) must be written before. Errors, with none
  // submitted: absent: the queue is gone or disabled; denied: it no longer belongs to this process.
  virtual Result<std::size_t> submit(std::span<const Descriptor> descriptors) = 0;

  // False: the portal refuses batch descriptors; several descriptors in one submit() replace them.
  virtual bool takes_batches() const = 0;

  // False: each submission is a system call.
  virtual bool mapped() const { return true; }

  // A name for users: "ENQCMD", "write()", "emulator".
  virtual std::string_view name() const = 0;
};

}  // namespace headrace::dsa
