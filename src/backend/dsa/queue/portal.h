// SPDX-License-Identifier: Apache-2.0
// The way into one work queue of a DSA device: its mapped portal, its character device, or an
// emulated one.
//
// A portal only submits descriptors. Whether one was executed its completion record tells, and
// of some there never comes one: a descriptor for a full dedicated queue is dropped without a word,
// so whoever submits there counts what is in flight. Thread-safe.
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

  // Submits the first n of them in order, n <= size; fewer when a shared queue is full. What a
  // descriptor points to (records set to 0, lists) must be written before. absent: the queue is
  // gone or disabled, denied: it is no longer this process's; none was submitted then.
  virtual Result<std::size_t> submit(std::span<const Descriptor> descriptors) = 0;

  // False: a batch descriptor would be refused; several descriptors in one submit() come instead.
  virtual bool takes_batches() const = 0;

  // False: each submission is a system call.
  virtual bool mapped() const { return true; }

  // In words: "ENQCMD", "write()", "emulator".
  virtual std::string_view name() const = 0;
};

}  // namespace headrace::dsa
