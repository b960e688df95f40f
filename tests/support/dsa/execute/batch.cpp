// SPDX-License-Identifier: Apache-2.0
#include "tests/support/dsa/execute/batch.h"

#include <utility>

#include "core/check.h"

namespace headrace::emulator {

DescriptorList fetch_list(const Descriptor& batch, Access& access) {
  DescriptorList list;
  const Region regions[] = {{batch.source, Touch::read}};
  const std::uint64_t size = sizeof(Descriptor) * std::uint64_t{batch.size};
  for (std::uint64_t done = 0; done < size; done += sizeof(Descriptor)) {
    Descriptor descriptor;
    const auto bytes = std::as_writable_bytes(std::span(&descriptor, 1));
    if (access.next(done, size, regions, false, sizeof(Descriptor)) == 0 ||
        access.read(batch.source + done, bytes) < sizeof(Descriptor)) {
      list.fault = access.fault();
      break;
    }
    list.descriptors.push_back(descriptor);
  }
  return list;
}

Batch::Batch(Task parent, DescriptorList list, std::uint64_t first_number)
    : parent_(std::move(parent)),
      list_(std::move(list)),
      first_number_(first_number),
      failed_before_(parent_.descriptor.has(flag::batch_error)) {
  open_segment();
}

// Lets through what lies before the next fence.
void Batch::open_segment() {
  const auto& descriptors = list_.descriptors;
  if (silent_ || next_ == descriptors.size()) return;
  if (descriptors[next_].has(flag::fence) && (failed_ || failed_before_)) {
    abandoned_ += descriptors.size() - next_;
    next_ = descriptors.size();
    return;
  }
  do {
    ready_.push_back(next_++);
  } while (next_ < descriptors.size() && !descriptors[next_].has(flag::fence));
}

std::pair<Descriptor, std::size_t> Batch::take(std::size_t which) {
  CHECK(which < ready_.size());
  const std::size_t index = ready_[which];
  ready_.erase(ready_.begin() + static_cast<std::ptrdiff_t>(which));
  ++executing_;
  return {list_.descriptors[index], index};
}

void Batch::completed(bool well) {
  CHECK(executing_ > 0);
  --executing_;
  ++processed_;
  failed_ = failed_ || !well;
  if (over()) open_segment();
}

void Batch::dropped() {
  CHECK(executing_ > 0 && silent_);
  --executing_;
  ++abandoned_;
}

void Batch::abandon() {
  silent_ = true;
  abandoned_ += ready_.size() + (list_.descriptors.size() - next_);
  ready_.clear();
  next_ = list_.descriptors.size();
}

Record Batch::record() const {
  CHECK(over());
  Record record;
  Code code = failed_ || abandoned_ > 0 ? Code::batch_failed : Code::success;
  if (list_.fault) {
    code = Code::batch_list_fault;
    record.fault_address = list_.fault->address & ~(kPage - 1);
  }
  record.status = static_cast<std::uint8_t>(code);
  record.completed = processed_;
  // For the batch error flag of what is submitted of the rest (GENCAP bit 15).
  record.result = failed_ || failed_before_ ? 1 : 0;
  return record;
}

}  // namespace headrace::emulator
