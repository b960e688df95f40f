// SPDX-License-Identifier: Apache-2.0
#include "tests/support/dsa/execute.h"

#include <algorithm>
#include <array>

namespace headrace::emulator {
namespace {

// A status that table 8-9 of SPEC does not have.
constexpr std::uint8_t kUnknownStatus = 0x3b;

bool has_record(const Descriptor& descriptor) {
  return descriptor.has(flag::record_valid) && descriptor.record % sizeof(Record) == 0;
}

// SPEC 8.2: for errors other than faults all fields but the status are undefined.
Record refused(std::uint8_t status) {
  constexpr std::uint64_t kUndefined = 0xa5a5a5a5a5a5a5a5;
  return {.status = status,
          .result = 0xa5,
          .fault_info = 0xa5,
          .reserved = 0xa5,
          .completed = 0xa5a5a5a5,
          .fault_address = kUndefined,
          .extra = {kUndefined, kUndefined}};
}

// SPEC 5, 8.1, 8.3. Code::none: it may be executed.
Code check(const Descriptor& of, bool in_batch, const QueueSetup& queue) {
  const Opcode opcode = of.opcode();
  const bool moves = opcode == Opcode::memmove;
  const bool batch = opcode == Opcode::batch;
  if (!queue.operations().has(opcode) || (batch && in_batch)) return Code::bad_opcode;
  const std::uint32_t allowed =
      flag::record_valid | flag::request_record | (moves ? flag::to_cache : 0);
  // "must be 0 if the completion record address is not valid".
  const bool no_address = of.has(flag::request_record) && !of.has(flag::record_valid);
  if ((of.flags() & ~allowed) != 0 || no_address) return Code::bad_flags;
  Descriptor unused = of;
  unused.owner = unused.command = 0;
  unused.record = 0;
  if (moves || batch) unused.source = unused.size = 0;
  if (moves) unused.destination = 0;
  if (unused != Descriptor{}) return Code::reserved_field;
  if (moves && (of.size == 0 || of.size > queue.max_transfer)) return Code::bad_size;
  if (batch && (of.size < 2 || of.size > kMaxBatch)) return Code::bad_count;
  return batch && of.source % sizeof(Descriptor) != 0 ? Code::list_alignment : Code::none;
}

// SPEC 3.6, 8.2: bits 11:0 of the fault address may be 0, so they are.
Record stopped(std::uint64_t address, bool in_writing, std::uint64_t done, bool backwards) {
  return {.status = static_cast<std::uint8_t>(in_writing ? 0x83 : 0x03),
          .result = backwards,
          .completed = static_cast<std::uint32_t>(done),
          .fault_address = address & ~(kPage - 1)};
}

// SPEC 8.3, "Memory Move": in steps that no page boundary crosses. From the end on where the
// destination lies behind an overlapping source, else bytes would be read after they were
// overwritten.
Record move(const Descriptor& of, AddressSpace& space, const InjectedFault& injected) {
  const bool backwards = of.source < of.destination && of.destination - of.source < of.size;
  const bool planted = injected.kind == InjectedFault::Kind::page_fault;
  std::array<std::byte, kPage> buffer;
  for (std::uint64_t done = 0; done < of.size;) {
    const std::uint64_t left = of.size - done;
    const std::uint64_t edge = backwards ? left : done;  // between what is done and what is left
    if (planted && injected.at == done) {
      const std::uint64_t at = injected.in_writing ? of.destination : of.source;
      return stopped(at + edge - backwards, injected.in_writing, done, backwards);
    }
    std::uint64_t n = left;
    if (planted && injected.at > done) n = std::min(n, injected.at - done);
    for (const std::uint64_t at : {of.source + edge, of.destination + edge}) {
      n = std::min(n, backwards ? (at - 1) % kPage + 1 : kPage - at % kPage);
    }
    const std::uint64_t offset = backwards ? left - n : done;
    const auto bytes = std::span(buffer).first(n);
    if (!space.read(of.source + offset, bytes)) {
      return stopped(of.source + offset, false, done, backwards);
    }
    if (!space.write(of.destination + offset, bytes)) {
      return stopped(of.destination + offset, true, done, backwards);
    }
    done += n;
  }
  return {.status = static_cast<std::uint8_t>(Code::success)};
}

DescriptorList fetch_list(const Descriptor& batch, AddressSpace& space,
                          const InjectedFault& injected) {
  DescriptorList list;
  for (std::uint64_t i = 0; i < batch.size; ++i) {
    const std::uint64_t at = batch.source + i * sizeof(Descriptor);
    const bool planted =
        injected.kind == InjectedFault::Kind::page_fault && injected.at / sizeof(Descriptor) == i;
    Descriptor descriptor;
    if (planted || !space.read(at, std::as_writable_bytes(std::span(&descriptor, 1)))) {
      list.fault = at & ~(kPage - 1);
      break;
    }
    list.descriptors.push_back(descriptor);
  }
  return list;
}

// The status last: whoever sees it sees the rest, too.
bool write_record(std::uint64_t address, const Record& record, AddressSpace& space) {
  const auto bytes = std::as_bytes(std::span(&record, 1));
  return space.write(address + 1, bytes.subspan(1)) && space.write(address, bytes.first(1));
}

}  // namespace

// Makes the same number of draws from `random` for each descriptor.
InjectedFault draw(const DeviceFaults& faults, const Descriptor& descriptor, Random& random) {
  using Kind = InjectedFault::Kind;
  Random own = random.fork();
  if (own.chance(faults.page_fault_chance)) {
    const std::uint64_t unit = descriptor.opcode() == Opcode::batch ? sizeof(Descriptor) : 1;
    const std::uint64_t bytes = std::max<std::uint64_t>(1, descriptor.size * unit);
    return {.kind = Kind::page_fault,
            .at = static_cast<std::uint32_t>(own.below(bytes)),
            .in_writing = own.chance(0.5)};
  }
  if (own.chance(faults.hardware_chance)) return {.kind = Kind::status};
  if (own.chance(faults.unknown_status_chance)) {
    return {.kind = Kind::status, .status = kUnknownStatus};
  }
  return {.kind = own.chance(faults.lost_record_chance) ? Kind::lost_record : Kind::none};
}

Executed execute(const Descriptor& descriptor, bool in_batch, const QueueSetup& queue,
                 AddressSpace& space, const InjectedFault& injected) {
  Code code = check(descriptor, in_batch, queue);
  if (descriptor.has(flag::record_valid) && !has_record(descriptor)) code = Code::record_alignment;
  if (code != Code::none) return {.record = refused(static_cast<std::uint8_t>(code))};
  if (injected.kind == InjectedFault::Kind::status) return {.record = refused(injected.status)};
  switch (descriptor.opcode()) {
    case Opcode::batch: return {.record = {}, .list = fetch_list(descriptor, space, injected)};
    case Opcode::memmove: return {.record = move(descriptor, space, injected)};
    default: return {.record = {.status = static_cast<std::uint8_t>(Code::success)}};
  }
}

bool deliver(const Descriptor& descriptor, const Record& record, AddressSpace& space,
             const InjectedFault& injected) {
  const bool wanted = descriptor.has(flag::record_valid) &&
                      (record.code() != Code::success || descriptor.has(flag::request_record));
  if (!wanted) return true;
  if (!has_record(descriptor) || injected.kind == InjectedFault::Kind::lost_record) return false;
  if (write_record(descriptor.record, record, space)) return true;
  // SPEC 3.13: the page of a record is always asked for.
  space.request(descriptor.record);
  return write_record(descriptor.record, record, space);
}

}  // namespace headrace::emulator
