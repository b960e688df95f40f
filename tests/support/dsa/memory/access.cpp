// SPDX-License-Identifier: Apache-2.0
#include "tests/support/dsa/memory/access.h"

#include <algorithm>

namespace headrace::emulator {
namespace {

// After this many granted requests for one page that is still absent the device gives up
// ("too many retries", SPEC table 8-9, code 4).
constexpr unsigned kMostRequests = 8;

constexpr unsigned kWriteFault = 0x80;

}  // namespace

Access::Access(AddressSpace& space, bool block_on_fault, const InjectedFault& injected)
    : space_(space), block_on_fault_(block_on_fault) {
  if (injected.kind == InjectedFault::Kind::page_fault) planted_ = injected;
}

// Asks for the page of `address`; notes the fault if it may not be asked for or is refused.
bool Access::resolve(std::uint64_t address, Touch touch) {
  if (block_on_fault_ && space_.resolve(address, touch)) {
    ++resolved_;
    return true;
  }
  note(address, touch);
  return false;
}

void Access::note(std::uint64_t address, Touch touch) {
  const Code code = block_on_fault_ ? Code::page_request_refused : Code::page_fault;
  const unsigned write = touch == Touch::write ? kWriteFault : 0;
  fault_ = {static_cast<std::uint8_t>(static_cast<unsigned>(code) | write), address};
}

template <class Move>
std::size_t Access::transfer(std::uint64_t address, std::size_t size, Touch touch, Move move) {
  std::size_t done = move(0);
  for (unsigned tries = 0; done < size; ++tries) {
    if (tries == kMostRequests) {
      note(address + done, touch);
      return done;
    }
    if (!resolve(address + done, touch)) return done;
    const std::size_t more = move(done);
    if (more > 0) tries = 0;
    done += more;
  }
  return done;
}

std::size_t Access::read(std::uint64_t address, std::span<std::byte> to) {
  return transfer(address, to.size(), Touch::read,
                  [&](std::size_t done) { return space_.read(address + done, to.subspan(done)); });
}

std::size_t Access::write(std::uint64_t address, std::span<const std::byte> from) {
  return transfer(address, from.size(), Touch::write, [&](std::size_t done) {
    return space_.write(address + done, from.subspan(done));
  });
}

std::size_t Access::reach(std::uint64_t address, std::size_t size, Touch touch) {
  return transfer(address, size, touch, [&](std::size_t done) {
    return space_.reach(address + done, size - done, touch);
  });
}

std::size_t Access::next(std::uint64_t done, std::uint64_t size, std::span<const Region> regions,
                         bool backwards, std::uint64_t grain) {
  std::uint64_t most = std::min(kPage, size - done);
  if (planted_ && !regions.empty()) {
    const std::uint64_t at = planted_->at - planted_->at % grain;
    if (done == at) {
      const Region& region = regions[planted_->operand % regions.size()];
      planted_.reset();
      const std::uint64_t offset = backwards ? size - done - 1 : done;
      if (!resolve(region.address + offset, region.touch)) return 0;
    } else if (done < at) {
      most = std::min(most, at - done);
    }
  }
  for (const Region& region : regions) {
    const std::uint64_t at = region.address + (backwards ? size - done : done);
    const std::uint64_t in_page = backwards ? (at - 1) % kPage + 1 : kPage - at % kPage;
    most = std::min(most, in_page);
  }
  return static_cast<std::size_t>(most);
}

// SPEC 8.2: bits 11:0 of the fault address may be 0, so they are.
Record stopped(const Access& access, std::uint64_t done) {
  Record record;
  if (!access.fault()) return record;
  record.status = access.fault()->status;
  record.completed = static_cast<std::uint32_t>(done);
  record.fault_address = access.fault()->address & ~(kPage - 1);
  return record;
}

}  // namespace headrace::emulator
