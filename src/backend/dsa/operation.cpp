#include "backend/dsa/operation.h"

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

// Operations without bytes, and those that are done as a whole or not at all: a delta cannot be
// resumed where its record would have to go on at an address that is no multiple of 8, so it begins
// again, which is right since neither side of it has changed.
bool is_one_piece(Opcode opcode) {
  return opcode == Opcode::noop || opcode == Opcode::drain || opcode == Opcode::create_delta ||
         opcode == Opcode::apply_delta;
}

bool reads_source(Opcode opcode) {
  switch (opcode) {
    case Opcode::memmove:
    case Opcode::compare:
    case Opcode::compare_pattern:
    case Opcode::create_delta:
    case Opcode::dualcast:
    case Opcode::crc:
    case Opcode::copy_crc:
    case Opcode::translation_fetch: return true;
    default: return false;
  }
}

bool has_destination(Opcode opcode) {
  switch (opcode) {
    case Opcode::memmove:
    case Opcode::fill:
    case Opcode::compare:
    case Opcode::create_delta:
    case Opcode::apply_delta:
    case Opcode::dualcast:
    case Opcode::copy_crc:
    case Opcode::cache_flush: return true;
    default: return false;
  }
}

bool is_compare(Opcode opcode) {
  return opcode == Opcode::compare || opcode == Opcode::compare_pattern;
}

bool is_crc(Opcode opcode) { return opcode == Opcode::crc || opcode == Opcode::copy_crc; }

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

void advance(Operation& operation, std::uint64_t bytes) {
  CHECK(bytes <= operation.bytes);
  const Opcode opcode = operation.opcode;
  if (reads_source(opcode)) operation.source += bytes;
  if (has_destination(opcode)) operation.destination += bytes;
  if (opcode == Opcode::dualcast) operation.destination2 += bytes;
  if (opcode == Opcode::fill || opcode == Opcode::compare_pattern) rotate(operation, bytes);
  operation.bytes -= bytes;
}

Descriptor describe(const Operation& operation) {
  const Opcode opcode = operation.opcode;
  Descriptor made;
  made.set(opcode, operation.flags | flag::record_valid | flag::request_record);
  if (reads_source(opcode)) made.source = operation.source;
  if (has_destination(opcode)) made.destination = operation.destination;
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
      // Of the 32-bit CRC the upper half is reserved.
      made.extra[0] =
          (operation.flags & flag::crc64) != 0 ? operation.seed : operation.seed & 0xffffffff;
      break;
    default: break;
  }
  return made;
}

Work::Work(const Operation& operation)
    : left_(operation),
      most_faults_(kUsualFaults + static_cast<std::uint32_t>(operation.bytes >> 20)) {}

Descriptor Work::next(std::uint64_t most) {
  if (!under_way_) cut(most);
  return open_ == left_.bytes ? describe(left_) : describe(part());
}

// The front of what is left; its end where the front would overwrite what is still to be read.
void Work::cut(std::uint64_t most) {
  under_way_ = true;
  part_ = is_one_piece(left_.opcode)
              ? left_.bytes
              : std::min(left_.bytes, std::clamp<std::uint64_t>(most, 1, kMostSize));
  open_ = part_;
  skipped_ = 0;
  from_end_ = part_ < left_.bytes && left_.opcode == Opcode::memmove &&
              left_.destination > left_.source &&
              overlap(left_.source, left_.destination, left_.bytes);
}

Operation Work::part() const {
  Operation part = left_;
  if (from_end_) advance(part, left_.bytes - part_ + skipped_);
  part.bytes = open_;
  return part;
}

Next Work::absorb(const Record& record) {
  switch (record.code()) {
    case Code::success:
    case Code::success_false: return succeed(record);
    case Code::page_fault:
    case Code::page_request_refused: return resume(record);
    default: failure_ = record.code(); return Next::failed;
  }
}

Next Work::succeed(const Record& record) {
  switch (left_.opcode) {
    case Opcode::compare:
    case Opcode::compare_pattern:
      return found({.result = record.result, .value = record.completed});
    case Opcode::create_delta:
      return found({.result = record.result, .value = record.extra[0] & 0xffffffff});
    case Opcode::crc:
    case Opcode::copy_crc: return found({.value = crc_of(left_, record)});
    default: return pass_part();
  }
}

Next Work::found(const Outcome& part) {
  under_way_ = false;
  outcome_.result = part.result;
  if (!is_compare(left_.opcode)) {
    outcome_.value = part.value;
  } else if (part.result != 0) {
    outcome_.value = passed_ + part.value;
    done_ = true;
    return Next::done;
  }
  if (is_crc(left_.opcode)) left_.seed = part.value;
  return pass_part();
}

// All of the part is done.
Next Work::pass_part() {
  under_way_ = false;
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
Next Work::resume(const Record& record) {
  ++faults_;
  failure_ = record.code();
  if (is_one_piece(left_.opcode)) return Next::touch;
  const std::uint64_t done = record.completed;
  if (done > open_) {
    failure_ = Code::hardware;
    return Next::failed;
  }
  open_ -= done;
  const bool backwards = left_.opcode == Opcode::memmove && record.result == 1;
  if (!backwards && done > 0) {
    // Without a byte done the old seed is as good, and there is no partial CRC.
    if (is_crc(left_.opcode)) left_.seed = crc_of(left_, record);
    pass(done);
  }
  if (open_ > 0) return Next::touch;
  // The fault was behind the last byte.
  return found({.value = is_crc(left_.opcode) ? left_.seed : 0});
}

// The first bytes of the part are done. At the end of what is left they are in its middle: then
// what is before the part becomes work of its own, later.
void Work::pass(std::uint64_t bytes) {
  if (from_end_) {
    skipped_ += bytes;
    return;
  }
  advance(left_, bytes);
  part_ -= bytes;
  passed_ += bytes;
}

std::optional<Operation> Work::rest() const {
  if (done_) return std::nullopt;
  return under_way_ ? part() : left_;
}

void Work::add(const Outcome& found_there) {
  if (!under_way_) {
    part_ = left_.bytes;
    from_end_ = false;
  }
  found(found_there);
}

std::array<Operand, 3> Work::operands() const {
  const Operation part = under_way_ ? this->part() : left_;
  const bool only_read = part.opcode == Opcode::compare || part.opcode == Opcode::create_delta ||
                         part.opcode == Opcode::cache_flush;
  std::array<Operand, 3> all{};
  if (reads_source(part.opcode)) all[0] = {part.source, part.bytes, false};
  if (has_destination(part.opcode)) all[1] = {part.destination, part.bytes, !only_read};
  if (part.opcode == Opcode::dualcast) all[2] = {part.destination2, part.bytes, true};
  if (part.opcode == Opcode::create_delta) all[2] = {part.delta, part.delta_bytes, true};
  if (part.opcode == Opcode::apply_delta) all[2] = {part.delta, part.delta_bytes, false};
  return all;
}

bool Work::hopeless() const { return faults_ > most_faults_; }

bool Work::repeatable() const {
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
