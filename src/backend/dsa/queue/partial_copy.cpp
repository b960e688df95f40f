// SPDX-License-Identifier: Apache-2.0
#include "backend/dsa/queue/partial_copy.h"

#include <algorithm>

namespace headrace::dsa {
namespace {

constexpr std::uint32_t kUsualFaults = 64;
constexpr std::uint64_t kMostSize = 0xffffffff;  // a descriptor's size has 32 bits

}  // namespace

PartialCopy::PartialCopy(const Copy& copy)
    : rest_(copy), most_faults_(kUsualFaults + static_cast<std::uint32_t>(copy.bytes >> 20)) {}

Descriptor PartialCopy::next(std::uint64_t most) {
  part_ = std::min(rest_.bytes, std::clamp<std::uint64_t>(most, 1, kMostSize));
  Descriptor made;
  made.set(Opcode::memmove,
           flag::record_valid | flag::request_record | (rest_.to_cache ? flag::to_cache : 0));
  made.source = rest_.source;
  made.destination = rest_.destination;
  made.size = static_cast<std::uint32_t>(part_);
  return made;
}

Next PartialCopy::absorb(const Record& record) {
  switch (record.code()) {
    case Code::success: return pass(part_);
    case Code::page_fault:
    case Code::page_request_refused: break;
    default: return Next::failed;
  }
  ++faults_;
  if (record.completed > part_) return Next::failed;
  // A copy that ran backwards has done its last bytes, so the part begins again.
  const bool backwards = record.result == 1;
  const Next next = pass(backwards ? 0 : record.completed);
  return next == Next::more ? Next::touch : next;
}

Next PartialCopy::pass(std::uint64_t bytes) {
  rest_.source += bytes;
  rest_.destination += bytes;
  rest_.bytes -= bytes;
  return rest_.bytes == 0 ? Next::done : Next::more;
}

}  // namespace headrace::dsa
