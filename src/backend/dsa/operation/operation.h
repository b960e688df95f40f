// SPDX-License-Identifier: Apache-2.0
// One operation as its user sees it, and its way through devices: cut to what a queue takes,
// resumed behind a page fault, by the rules for its opcode.
//
// Pure: addresses are numbers here, nothing is read or written through them. What a device does
// with a descriptor is the device's business; this says what to send next and when it is over.
// Sources: SPEC 3.6, 7.3 and 8.3; Intel's own dsa_prep.c (idxd-config) for memmove, compare and
// fill.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "backend/dsa/operation/descriptor.h"

namespace headrace::dsa {

// What is wanted. Addresses are of the process that submits.
struct Operation {
  Opcode opcode = Opcode::noop;
  std::uint64_t source = 0;
  std::uint64_t destination = 0;   // compare: the second source
  std::uint64_t destination2 = 0;  // dualcast
  std::uint64_t bytes = 0;
  std::array<std::uint64_t, 2> pattern{};  // fill, compare_pattern ([0])
  std::uint64_t seed = 0;                  // crc, copy_crc
  std::uint64_t delta = 0;                 // address of the delta record
  std::uint32_t delta_bytes = 0;           // create_delta: room for it; apply_delta: its size
  // Those of flag:: that are the user's: to_cache, readback, pattern16, crc64, no_reflection,
  // no_data_reflection, fence (in a program: after all before it).
  std::uint32_t flags = 0;

  bool fenced() const { return (flags & flag::fence) != 0; }
};

// What an operation tells besides that it is done.
enum class Finds : std::uint8_t { nothing, difference, crc, delta };

// What the client has to know of an operation by its opcode; how it is done is not here.
struct OperationKind {
  bool known = false;  // the client can describe it to a device
  // Addresses in use, with Operation::bytes at each; whether the destination is written.
  bool source = false;
  bool destination = false;
  bool writes = false;
  bool cached = false;     // to_cache is a valid flag (SPEC table 8-3)
  bool one_piece = false;  // neither cut nor resumed: begun again after a fault
  bool sized = true;       // without bytes a device refuses it
  Finds finds = Finds::nothing;
};
const OperationKind& kind_of(Opcode opcode);

// What came of it.
struct Outcome {
  // compare, compare_pattern: 0 equal, 1 not. create_delta: 0 equal, 1 there is a record, 2 it did
  // not fit.
  std::uint8_t result = 0;
  // crc, copy_crc: the CRC. create_delta: bytes of the record. compare: if not equal, an offset no
  // greater than that of the first difference.
  std::uint64_t value = 0;
};

// What a completion record means for an operation.
enum class Next : std::uint8_t {
  done,    // outcome() is there
  more,    // send next()
  touch,   // bring its pages in, then send next()
  failed,  // this device will not do it: failure()
};

// Bytes that an operation reads or writes, from where it stands.
struct Operand {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  bool written = false;
};

// An operation on its way. Thread-compatible.
class PartialOperation {
 public:
  // The most bytes of a delta operation (SPEC 8.3.8).
  static constexpr std::uint64_t kMostDelta = 512 << 10;

  explicit PartialOperation(const Operation& operation = {});

  // The descriptor to submit now, for a queue that takes so many bytes at once; its record is left
  // to the caller. The same until absorb(), and until one is told it has not begun. Requires: the
  // last absorb() did not return done.
  Descriptor next(std::uint64_t most);
  Next absorb(const Record& record);

  // What is left of it first, for the CPU to do from where the devices stopped; nothing: it is
  // done.
  std::optional<Operation> rest() const;
  // What the part in flight still reads and writes; unused ones have no bytes.
  std::array<Operand, 3> operands() const;
  // What was found about rest(), done elsewhere.
  void add(const Outcome& found);

  const Outcome& outcome() const { return outcome_; }
  // The device's last refusal.
  Code failure() const { return failure_; }
  // More faults than touching its pages can explain.
  bool hopeless() const;
  // Whether what is left may be done again after an unknown part of it was done: not where it
  // writes to what it reads.
  bool repeatable() const;

 private:
  void cut(std::uint64_t most);
  Operation part() const;
  Next succeed(const Record& record);
  Next resume(const Record& record);
  Next found(const Outcome& part);
  Next pass_part();
  void pass(std::uint64_t bytes);

  // What is left, the part in flight included: its first bytes, or its last ones. Of the part some
  // may be done: then `left_` begins behind them, or its end is left out of `open_`.
  Operation left_;
  std::uint64_t part_ = 0;     // bytes of the part
  std::uint64_t open_ = 0;     // of them, not yet done
  std::uint64_t skipped_ = 0;  // of a part at the end: done at its front
  std::uint64_t passed_ = 0;   // bytes done, front to back
  Outcome outcome_;
  std::uint32_t faults_ = 0;
  std::uint32_t most_faults_ = 0;
  bool in_flight_ = false;
  bool from_end_ = false;
  bool done_ = false;
  Code failure_ = Code::none;
};

// What of `operation` is behind its first `bytes`. Requires: not more than it
// has.
void advance(Operation& operation, std::uint64_t bytes);

// How an operation looks to a device, without a record.
Descriptor describe(const Operation& operation);

}  // namespace headrace::dsa
