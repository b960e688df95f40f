// SPDX-License-Identifier: Apache-2.0
// How one operation reaches memory: in steps that no page boundary crosses, until a fault ends it.
//
// With block on fault missing pages are asked for and the operation goes on; without, or when the
// request is refused, it stops (SPEC 3.6, 3.13). Single-thread: one per operation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "tests/support/dsa/memory/address_space.h"
#include "tests/support/dsa/memory/injected_fault.h"

namespace headrace::emulator {

// Has the size of the operation's other regions, and is walked along with them.
struct Region {
  std::uint64_t address;
  Touch touch;
};

struct PageFault {
  std::uint8_t status;  // of the record: the code, bit 7 for a write
  std::uint64_t address;
};

class Access {
 public:
  Access(AddressSpace& space, bool block_on_fault, const InjectedFault& injected);

  // Both return how many bytes, from the front; fewer than asked: fault() says why.
  std::size_t read(std::uint64_t address, std::span<std::byte> to);
  std::size_t write(std::uint64_t address, std::span<const std::byte> from);
  // Asks for the pages only.
  std::size_t reach(std::uint64_t address, std::size_t size, Touch touch);

  // How many bytes an operation that has done `done` of `size` does next: at least 1 and at most
  // kPage, to the end of a page or to the planted fault. 0: that is here, and it was not resolved.
  // Backwards: the regions are walked from their ends. A planted fault counts in whole `grain`s.
  std::size_t next(std::uint64_t done, std::uint64_t size, std::span<const Region> regions,
                   bool backwards = false, std::uint64_t grain = 1);

  bool imaginary() const { return space_.imaginary(); }

  // The last one that ended a read, write, reach or next.
  const std::optional<PageFault>& fault() const { return fault_; }
  std::uint64_t resolved() const { return resolved_; }

 private:
  template <class Move>
  std::size_t transfer(std::uint64_t address, std::size_t size, Touch touch, Move move);
  bool resolve(std::uint64_t address, Touch touch);
  void note(std::uint64_t address, Touch touch);

  AddressSpace& space_;
  const bool block_on_fault_;
  std::optional<InjectedFault> planted_;
  std::optional<PageFault> fault_;
  std::uint64_t resolved_ = 0;
};

// The record of an operation that its Access stopped after `done` bytes.
Record stopped(const Access& access, std::uint64_t done);

}  // namespace headrace::emulator
