// SPDX-License-Identifier: Apache-2.0
// Anonymous pages as source or target of moves, mapped for one measurement: of one page size,
// aligned for huge pages. Thread-compatible.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "headrace/machine.h"
#include "headrace/result.h"
#include "headrace/units.h"
#include "memory/memory.h"

namespace headrace::experiment_migrate {

// Consecutive pages of a region, moved by one thread or one call.
struct Part {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
};

// The `i`-th of `parts` parts, which differ by at most one page.
Part part_of(std::uint64_t pages, std::size_t i, std::size_t parts);

// Number of kernel pages, of any size, that are not on `node`.
Result<std::uint64_t> pages_not_on(NodeId node, std::span<const std::byte> bytes);

class Region {
 public:
  // Maps pages of size `page`, base or huge, bound to `node` if given; no page is present yet.
  static Result<std::unique_ptr<Region>> make(std::optional<NodeId> node, Bytes bytes, Bytes page);

  std::span<std::byte> bytes() const { return {memory_.memory(), memory_.length().value}; }
  std::span<std::byte> bytes(Part part) const {
    return bytes().subspan(part.first * page_.value, part.count * page_.value);
  }
  std::uint64_t pages() const { return memory_.length() / page_; }

  // Fills it with ones by a thread on each CPU, and checks page size and node. Errors: exhausted:
  // not as requested.
  Status fill(const CpuSet& cpus, std::optional<NodeId> node);

  // Moves pages to `node` (move_pages). A huge page moves as a whole.
  Status move(Part part, NodeId node);

 private:
  Region(MappedMemory memory, Bytes page) : memory_(std::move(memory)), page_(page) {}
  bool make_huge();

  const MappedMemory memory_;
  const Bytes page_;
};

}  // namespace headrace::experiment_migrate
