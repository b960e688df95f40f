// SPDX-License-Identifier: Apache-2.0
#include "backend/dsa/operation/operation.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "core/check.h"

namespace headrace::dsa {
namespace {

constexpr std::uint32_t kUsualFaults = 64;
constexpr std::uint64_t kMostSize = 0xffffffff;  // a descriptor's size has 32 bits

bool overlap(std::uint64_t a, std::uint64_t b, std::uint64_t bytes) {
  return a < b + bytes && b < a + bytes;
}

// By opcode; those that are not here are unknown to the client. A delta is one piece, since it
// cannot be resumed where its record would have to go on at an address that is no multiple of 8; to
// begin again is right, as neither side of it has changed.
constexpr auto kKinds = [] {
  std::array<OperationKind, 0x21> kinds{};
  const auto add = [&kinds](Opcode opcode, OperationKind kind) {
    kind.known = true;
    kinds[static_cast<std::size_t>(opcode)] = kind;
  };
  add(Opcode::noop, {.one_piece = true, .sized = false});
  add(Opcode::drain, {.one_piece = true, .sized = false});
  add(Opcode::memmove, {.source = true, .destination = true, .writes = true, .cached = true});
  add(Opcode::fill, {.destination = true, .writes = true, .cached = true});
  add(Opcode::compare, {.source = true, .destination = true, .finds = Finds::difference});
  add(Opcode::compare_pattern, {.source = true, .finds = Finds::difference});
  add(Opcode::create_delta, {.source = true,
                             .destination = true,
                             .cached = true,
                             .one_piece = true,
                             .finds = Finds::delta});
  add(Opcode::apply_delta,
      {.destination = true, .writes = true, .cached = true, .one_piece = true});
  add(Opcode::dualcast, {.source = true, .destination = true, .writes = true, .cached = true});
  add(Opcode::translation_fetch, {.source = true});
  add(Opcode::crc, {.source = true, .finds = Finds::crc});
  add(Opcode::copy_crc,
      {.source = true, .destination = true, .writes = true, .cached = true, .finds = Finds::crc});
  add(Opcode::cache_flush, {.destination = true, .cached = true});
  return kinds;
}();

std::uint64_t crc_of(const Operation& operation, const Record& record) {
  const bool wide = (operation.flags & flag::crc64) != 0;
  return wide ? record.extra[0] : record.extra[0] & 0xffffffff;
}

// A pattern of which the first `bytes` are done begins elsewhere.
void rotate(Operation& operation, std::uint64_t bytes) {
  const bool wide = operation.opcode == Opcode::fill && (operation.flags & flag::pattern16) != 0;
  const std::size_t width = wide ? 16 : 8;
  std::array<std::byte, 16> pattern;
  std::memcpy(pattern.data(), operation.pattern.data(), pattern.size());
  const auto used = std::span(pattern).first(width);
  std::ranges::rotate(used, used.begin() + static_cast<std::ptrdiff_t>(bytes % width));
  std::memcpy(operation.pattern.data(), pattern.data(), pattern.size());
}

}  // namespace

const OperationKind& kind_of(Opcode opcode) {
  static constexpr OperationKind kUnknown{};
  const auto code = static_cast<std::size_t>(opcode);
  return code < kKinds.size() ? kKinds[code] : kUnknown;
}

void advance(Operation& operation, std::uint64_t bytes) {
  CHECK(bytes <= operation.bytes);
  const Opcode opcode = operation.opcode;
  if (kind_of(opcode).source) operation.source += bytes;
  if (kind_of(opcode).destination) operation.destination += bytes;
  if (opcode == Opcode::dualcast) operation.destination2 += bytes;
  if (opcode == Opcode::fill || opcode == Opcode::compare_pattern) rotate(operation, bytes);
  operation.bytes -= bytes;
}

Descriptor describe(const Operation& operation) {
  const Opcode opcode = operation.opcode;
  Descriptor made;
  made.set(opcode, operation.flags | flag::record_valid | flag::request_record);
  if (kind_of(opcode).source) made.source = operation.source;
  if (kind_of(opcode).destination) made.destination = operation.destination;
  made.size = static_cast<std::uint32_t>(operation.bytes);
  switch (opcode) {
    case Opcode::fill:
      made.source = operation.pattern[0];
      if ((operation.flags & flag::pattern16) != 0) made.extra[0] = operation.pattern[1];
      break;
    case Opcode::compare_pattern: made.destination = operation.pattern[0]; break;
    case Opcode::create_delta:
      made.extra[0] = operation.delta;
      made.extra[1] = operation.delta_bytes;
      break;
    case Opcode::apply_delta:
      made.source = operation.delta;
      made.extra[0] = operation.delta_bytes;
      break;
    case Opcode::dualcast: made.extra[0] = operation.destination2; break;
    case Opcode::crc:
    case Opcode::copy_crc:
      // The upper half of a 32-bit CRC is reserved.
      made.extra[0] =
          (operation.flags & flag::crc64) != 0 ? operation.seed : operation.seed & 0xffffffff;
      break;
    default: break;
  }
  return made;
}

PartialOperation::PartialOperation(const Operation& operation)
    : left_(operation),
      most_faults_(kUsualFaults + static_cast<std::uint32_t>(operation.bytes >> 20)) {}

Descriptor PartialOperation::next(std::uint64_t most) {
  if (!in_flight_) cut(most);
  return open_ == left_.bytes ? describe(left_) : describe(part());
}

// The front of what is left; its end where the front would overwrite what is still to be read.
void PartialOperation::cut(std::uint64_t most) {
  in_flight_ = true;
  part_ = kind_of(left_.opcode).one_piece
              ? left_.bytes
              : std::min(left_.bytes, std::clamp<std::uint64_t>(most, 1, kMostSize));
  open_ = part_;
  skipped_ = 0;
  from_end_ = part_ < left_.bytes && left_.opcode == Opcode::memmove &&
              left_.destination > left_.source &&
              overlap(left_.source, left_.destination, left_.bytes);
}

Operation PartialOperation::part() const {
  Operation part = left_;
  if (from_end_) advance(part, left_.bytes - part_ + skipped_);
  part.bytes = open_;
  return part;
}

Next PartialOperation::absorb(const Record& record) {
  switch (record.code()) {
    case Code::success:
    case Code::success_false: return succeed(record);
    case Code::page_fault:
    case Code::page_request_refused: return resume(record);
    default: failure_ = record.code(); return Next::failed;
  }
}

Next PartialOperation::succeed(const Record& record) {
  switch (kind_of(left_.opcode).finds) {
    case Finds::nothing: break;
    case Finds::difference: return found({.result = record.result, .value = record.completed});
    case Finds::crc: return found({.value = crc_of(left_, record)});
    case Finds::delta:
      return found({.result = record.result, .value = record.extra[0] & 0xffffffff});
  }
  return pass_part();
}

Next PartialOperation::found(const Outcome& part) {
  in_flight_ = false;
  outcome_.result = part.result;
  if (kind_of(left_.opcode).finds != Finds::difference) {
    outcome_.value = part.value;
  } else if (part.result != 0) {
    outcome_.value = passed_ + part.value;
    done_ = true;
    return Next::done;
  }
  if (kind_of(left_.opcode).finds == Finds::crc) left_.seed = part.value;
  return pass_part();
}

// All of the part is done.
Next PartialOperation::pass_part() {
  in_flight_ = false;
  passed_ += part_;
  if (from_end_ || part_ == left_.bytes) {
    left_.bytes -= part_;
  } else {
    advance(left_, part_);
  }
  done_ = left_.bytes == 0;
  return done_ ? Next::done : Next::more;
}

// What is done of the part: the front, or of a copy that ran backwards the end.
Next PartialOperation::resume(const Record& record) {
  ++faults_;
  failure_ = record.code();
  if (kind_of(left_.opcode).one_piece) return Next::touch;
  const std::uint64_t done = record.completed;
  if (done > open_) {
    failure_ = Code::hardware;
    return Next::failed;
  }
  open_ -= done;
  const bool backwards = left_.opcode == Opcode::memmove && record.result == 1;
  if (!backwards && done > 0) {
    // Without a byte done the old seed is as good, and there is no partial CRC.
    if (kind_of(left_.opcode).finds == Finds::crc) left_.seed = crc_of(left_, record);
    pass(done);
  }
  if (open_ > 0) return Next::touch;
  // The fault was behind the last byte.
  return found({.value = kind_of(left_.opcode).finds == Finds::crc ? left_.seed : 0});
}

// The first bytes of the part are done. At the end of what is left they are in its middle: then
// what is before the part becomes work of its own, later.
void PartialOperation::pass(std::uint64_t bytes) {
  if (from_end_) {
    skipped_ += bytes;
    return;
  }
  advance(left_, bytes);
  part_ -= bytes;
  passed_ += bytes;
}

std::optional<Operation> PartialOperation::rest() const {
  if (done_) return std::nullopt;
  return in_flight_ ? part() : left_;
}

void PartialOperation::add(const Outcome& found_there) {
  if (!in_flight_) {
    part_ = left_.bytes;
    from_end_ = false;
  }
  found(found_there);
}

std::array<Operand, 3> PartialOperation::operands() const {
  const Operation part = in_flight_ ? this->part() : left_;
  const OperationKind& kind = kind_of(part.opcode);
  std::array<Operand, 3> all{};
  if (kind.source) all[0] = {part.source, part.bytes, false};
  if (kind.destination) all[1] = {part.destination, part.bytes, kind.writes};
  if (part.opcode == Opcode::dualcast) all[2] = {part.destination2, part.bytes, true};
  if (part.opcode == Opcode::create_delta) all[2] = {part.delta, part.delta_bytes, true};
  if (part.opcode == Opcode::apply_delta) all[2] = {part.delta, part.delta_bytes, false};
  return all;
}

bool PartialOperation::hopeless() const { return faults_ > most_faults_; }

bool PartialOperation::repeatable() const {
  const std::array<Operand, 3> all = operands();
  for (const Operand& written : all) {
    if (!written.written) continue;
    for (const Operand& read : all) {
      if (!read.written && written.address < read.address + read.bytes &&
          read.address < written.address + written.bytes) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace headrace::dsa
