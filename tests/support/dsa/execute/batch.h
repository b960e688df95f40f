// SPDX-License-Identifier: Apache-2.0
// A batch in flight: which of its descriptors may be executed now, and what its record will say
// (SPEC 3.9, 8.3.2).
//
// Between two fences order is free. A fence waits for all before it, and if one of them failed it
// and everything behind it is abandoned. Single-thread: under the scheduler's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "tests/support/dsa/execute/task.h"
#include "tests/support/dsa/memory/access.h"

namespace headrace::emulator {

// The part of a descriptor list that a device has read: all, or the part before a page fault.
struct DescriptorList {
  std::vector<Descriptor> descriptors;
  std::optional<PageFault> fault;
};

// Requires: check() found nothing wrong with the batch descriptor.
DescriptorList fetch_list(const Descriptor& batch, Access& access);

class Batch {
 public:
  // `first_number`: of the first of its descriptors, among all the device knows.
  Batch(Task parent, DescriptorList list, std::uint64_t first_number);

  const Task& parent() const { return parent_; }
  std::uint64_t first_number() const { return first_number_; }
  // How many of its descriptors an engine may take now.
  std::size_t ready() const { return ready_.size(); }
  // The which-th of these, with the position it has in the list. Requires: which < ready().
  std::pair<Descriptor, std::size_t> take(std::size_t which);
  // One that was taken is over; well: its status is 1, and nothing else (SPEC 3.9).
  void completed(bool well);
  // One that was taken will not be executed after all.
  void dropped();
  // Descriptors that are not taken yet never will be, and there will be no record.
  void abandon();

  bool over() const { return ready_.empty() && executing_ == 0; }
  bool silent() const { return silent_; }
  std::uint64_t abandoned() const { return abandoned_; }
  // Requires: over().
  Record record() const;

 private:
  void open_segment();

  const Task parent_;
  const DescriptorList list_;
  const std::uint64_t first_number_;
  std::vector<std::size_t> ready_;
  std::size_t next_ = 0;  // the first that no fence has let through yet
  std::size_t executing_ = 0;
  std::uint32_t processed_ = 0;  // well or not
  std::uint64_t abandoned_ = 0;
  bool failed_ = false;         // one of these
  bool failed_before_ = false;  // one of a part submitted before
  bool silent_ = false;
};

}  // namespace headrace::emulator
