// SPDX-License-Identifier: Apache-2.0
#include "tests/support/dsa/execute/operations.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "tests/support/dsa/execute/crc.h"

namespace headrace::emulator {
namespace {

using Buffer = std::array<std::byte, kPage>;

// SPEC 8.3, "Memory Move": backwards where the destination lies behind an overlapping source, else
// bytes would be read after they were overwritten.
bool runs_backwards(const Descriptor& descriptor) {
  return descriptor.source < descriptor.destination &&
         descriptor.destination - descriptor.source < descriptor.size;
}

// From the end on; a step is done whole or not at all, as its source may lie where it writes.
Record move_backwards(const Descriptor& descriptor, Access& access) {
  const Region regions[] = {{descriptor.source, Touch::read},
                            {descriptor.destination, Touch::write}};
  Buffer buffer;
  std::uint64_t done = 0;
  while (done < descriptor.size) {
    const std::size_t n = access.next(done, descriptor.size, regions, true);
    const std::uint64_t offset = descriptor.size - done - n;
    const auto bytes = std::span(buffer).first(n);
    if (n == 0 || access.read(descriptor.source + offset, bytes) < n) break;
    if (access.reach(descriptor.destination + offset, n, Touch::write) < n) break;
    if (access.write(descriptor.destination + offset, bytes) < n) break;
    done += n;
  }
  if (done == descriptor.size) return succeeded();
  Record record = stopped(access, done);
  record.result = 1;
  return record;
}

// One step of a copy to one or two destinations; the bytes done, fewer than n after a fault.
std::size_t copy_step(Access& access, std::uint64_t source, std::span<const Region> to,
                      std::uint64_t done, std::span<std::byte> bytes) {
  std::size_t n = access.read(source + done, bytes);
  for (const Region& region : to) n = access.write(region.address + done, bytes.first(n));
  return n;
}

// From the first region to the others, front to back.
Record copy_forwards(const Descriptor& descriptor, Access& access,
                     std::span<const Region> regions) {
  Buffer buffer;
  std::uint64_t done = 0;
  while (done < descriptor.size) {
    const std::size_t n = access.next(done, descriptor.size, regions);
    const std::size_t moved =
        copy_step(access, descriptor.source, regions.subspan(1), done, std::span(buffer).first(n));
    done += moved;
    if (n == 0 || moved < n) return stopped(access, done);
  }
  return succeeded();
}

// SPEC 8.3, "Memory Move".
Record move(const Descriptor& descriptor, Access& access) {
  if (access.imaginary()) return succeeded();
  if (runs_backwards(descriptor)) return move_backwards(descriptor, access);
  const Region regions[] = {{descriptor.source, Touch::read},
                            {descriptor.destination, Touch::write}};
  return copy_forwards(descriptor, access, regions);
}

// SPEC 8.3, "Memory Copy with Dualcast".
Record dualcast(const Descriptor& descriptor, Access& access) {
  const Region regions[] = {{descriptor.source, Touch::read},
                            {descriptor.destination, Touch::write},
                            {descriptor.extra[0], Touch::write}};
  return copy_forwards(descriptor, access, regions);
}

// SPEC 8.3, "Fill": the pattern begins at the destination, whatever its alignment.
Record fill(const Descriptor& descriptor, Access& access) {
  const std::uint64_t words[] = {descriptor.source, descriptor.extra[0]};
  const std::size_t period = descriptor.has(flag::pattern16) ? 16 : 8;
  std::array<std::byte, 16> pattern;
  std::memcpy(pattern.data(), words, sizeof(words));
  const Region regions[] = {{descriptor.destination, Touch::write}};
  Buffer buffer;
  std::uint64_t done = 0;
  while (done < descriptor.size) {
    const std::size_t n = access.next(done, descriptor.size, regions);
    for (std::size_t i = 0; i < n; ++i) buffer[i] = pattern[(done + i) % period];
    const std::size_t filled =
        access.write(descriptor.destination + done, std::span(buffer).first(n));
    done += filled;
    if (n == 0 || filled < n) return stopped(access, done);
  }
  return succeeded();
}

// The record of a comparison that found a difference at `done`, or none.
Record compared(const Descriptor& descriptor, bool differ, std::uint64_t done) {
  const std::uint8_t result = differ ? 1 : 0;
  Record record = judged(descriptor, result, (descriptor.extra[0] & 1) == result);
  record.completed = differ ? static_cast<std::uint32_t>(done) : 0;
  return record;
}

// SPEC 8.3, "Compare": completed is where the first difference is.
Record compare(const Descriptor& descriptor, Access& access) {
  const Region regions[] = {{descriptor.source, Touch::read},
                            {descriptor.destination, Touch::read}};
  Buffer first;
  Buffer second;
  std::uint64_t done = 0;
  while (done < descriptor.size) {
    const std::size_t n = access.next(done, descriptor.size, regions);
    const std::size_t had = access.read(descriptor.source + done, std::span(first).first(n));
    const std::size_t both =
        access.read(descriptor.destination + done, std::span(second).first(had));
    const auto end = first.begin() + static_cast<std::ptrdiff_t>(both);
    const auto at = std::mismatch(first.begin(), end, second.begin()).first;
    done += static_cast<std::uint64_t>(at - first.begin());
    if (at != end) return compared(descriptor, true, done);
    if (n == 0 || both < n) return stopped(access, done);
  }
  return compared(descriptor, false, done);
}

// SPEC 8.3, "Compare Pattern": completed is no greater than where the first difference is; here it
// is the word of the pattern.
Record compare_pattern(const Descriptor& descriptor, Access& access) {
  std::array<std::byte, 8> pattern;
  std::memcpy(pattern.data(), &descriptor.destination, sizeof(pattern));
  const Region regions[] = {{descriptor.source, Touch::read}};
  Buffer buffer;
  std::uint64_t done = 0;
  while (done < descriptor.size) {
    const std::size_t n = access.next(done, descriptor.size, regions);
    const std::size_t had = access.read(descriptor.source + done, std::span(buffer).first(n));
    for (std::size_t i = 0; i < had; ++i) {
      if (buffer[i] == pattern[(done + i) % 8]) continue;
      return compared(descriptor, true, (done + i) / 8 * 8);
    }
    done += had;
    if (n == 0 || had < n) return stopped(access, done);
  }
  return compared(descriptor, false, done);
}

// SPEC 8.3, "CRC Generation", "Copy with CRC Generation". After a fault the record has the CRC of
// what was done: the seed of the rest (SPEC 3.6).
Record crc(const Descriptor& descriptor, Access& access, bool copy) {
  const CrcOptions options{.wide = descriptor.has(flag::crc64),
                           .no_reflection = descriptor.has(flag::no_reflection),
                           .no_data_reflection = descriptor.has(flag::no_data_reflection)};
  std::uint64_t seed = descriptor.extra[0];
  if (descriptor.has(flag::read_seed)) {
    const auto bytes = std::as_writable_bytes(std::span(&seed, 1)).first(options.wide ? 8 : 4);
    if (access.read(descriptor.extra[1], bytes) < bytes.size()) return stopped(access, 0);
  }
  const std::array<Region, 2> both = {
      {{descriptor.source, Touch::read}, {descriptor.destination, Touch::write}}};
  const auto regions = std::span(both).first(copy ? 2 : 1);
  Crc sum(seed, options);
  Buffer buffer;
  std::uint64_t done = 0;
  Record record = succeeded();
  while (done < descriptor.size) {
    const std::size_t n = access.next(done, descriptor.size, regions);
    const std::size_t moved =
        copy_step(access, descriptor.source, regions.subspan(1), done, std::span(buffer).first(n));
    sum.add(std::span(buffer).first(moved));
    done += moved;
    if (n == 0 || moved < n) {
      record = stopped(access, done);
      break;
    }
  }
  record.extra[0] = sum.value();
  return record;
}

// Pages are touched, nothing is moved. SPEC 8.3, "Translation Fetch", "Cache Flush".
Record touch_pages(const Descriptor& descriptor, Access& access, std::uint64_t address,
                   std::uint64_t stride) {
  const Region regions[] = {{address, Touch::read}};
  std::uint64_t done = 0;
  while (done < descriptor.size) {
    const std::size_t n = access.next(done, descriptor.size, regions);
    if (n == 0 || access.reach(address + done, 1, Touch::read) < 1) return stopped(access, done);
    done += std::max<std::uint64_t>(n, stride);
  }
  return succeeded();
}

// SPEC 3.12, "Drain": reads back from the addresses, so that writes before are in memory.
Record drain(const Descriptor& descriptor, Access& access) {
  std::byte byte;
  const bool first = descriptor.has(flag::readback_1);
  const bool second = descriptor.has(flag::readback_2);
  if ((first && access.read(descriptor.source, {&byte, 1}) < 1) ||
      (second && access.read(descriptor.destination, {&byte, 1}) < 1)) {
    Record record = stopped(access, 0);
    record.status = static_cast<std::uint8_t>(Code::readback_fault);
    return record;
  }
  return succeeded();
}

}  // namespace

Record succeeded() { return {.status = static_cast<std::uint8_t>(Code::success)}; }

Record judged(const Descriptor& descriptor, std::uint8_t result, bool expected) {
  const bool well = expected || !descriptor.has(flag::check_result);
  return {.status = static_cast<std::uint8_t>(well ? Code::success : Code::success_false),
          .result = result};
}

Record execute(const Descriptor& descriptor, Access& access) {
  switch (descriptor.opcode()) {
    case Opcode::drain: return drain(descriptor, access);
    case Opcode::memmove: return move(descriptor, access);
    case Opcode::fill: return fill(descriptor, access);
    case Opcode::compare: return compare(descriptor, access);
    case Opcode::compare_pattern: return compare_pattern(descriptor, access);
    case Opcode::create_delta: return create_delta(descriptor, access);
    case Opcode::apply_delta: return apply_delta(descriptor, access);
    case Opcode::dualcast: return dualcast(descriptor, access);
    case Opcode::translation_fetch:
      return touch_pages(descriptor, access, descriptor.source, descriptor.extra[1]);
    case Opcode::crc: return crc(descriptor, access, false);
    case Opcode::copy_crc: return crc(descriptor, access, true);
    case Opcode::cache_flush: return touch_pages(descriptor, access, descriptor.destination, 0);
    default: return succeeded();
  }
}

}  // namespace headrace::emulator
