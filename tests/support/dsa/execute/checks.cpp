// SPDX-License-Identifier: Apache-2.0
#include "tests/support/dsa/execute/checks.h"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>

namespace headrace::emulator {
namespace {

constexpr std::uint64_t kAll = ~std::uint64_t{0};
constexpr std::uint64_t kLow32 = 0xffffffff;

// SPEC 8.3, "Create Delta Record", "Apply Delta Record".
constexpr std::uint64_t kMostDelta = 512 << 10;
constexpr std::uint64_t kLeastDeltaRecord = 80;
constexpr std::uint64_t kDelta = 10;

// GENCAP bit 7, SPEC 9.2.2: translation fetch with a stride.
bool has_stride(const GeneralCapabilities& gen_cap) { return (gen_cap.bits >> 7 & 1) != 0; }

// Flags that any operation may have; SPEC table 8-3. Selectors of traffic classes: the emulator has
// but one class, so any of them will do, of two addresses and of the record.
constexpr std::uint32_t kCommon = flag::record_valid | flag::request_record | 1U << 12;
constexpr std::uint32_t kMemory = kCommon | flag::block_on_fault | 3U << 9;
constexpr std::uint32_t kThirdAddress = 1U << 11;
constexpr std::uint32_t kWrites = flag::to_cache | flag::strict_order | flag::readback;

// The bits of each field that an operation uses; the rest must be 0.
struct Form {
  std::uint32_t flags = 0;    // those it may have, if the device has the capability
  bool needs_record = false;  // it has a result: request_record must be 1 (SPEC table 8-3)
  std::uint64_t source = 0;
  std::uint64_t destination = 0;
  std::uint64_t size = 0;
  std::array<std::uint64_t, 3> extra{};
};

Form crc_form(const Descriptor& descriptor) {
  const bool from_memory = descriptor.has(flag::read_seed);
  const std::uint64_t seed = descriptor.has(flag::crc64) ? kAll : kLow32;
  return {.flags = kMemory | kThirdAddress | flag::read_seed | flag::no_reflection |
                   flag::no_data_reflection | flag::crc64,
          .needs_record = true,
          .source = kAll,
          .size = kLow32,
          .extra = {from_memory ? 0 : seed, from_memory ? kAll : 0, 0}};
}

Form copy_crc_form(const Descriptor& descriptor) {
  Form form = crc_form(descriptor);
  form.flags |= kWrites;
  form.destination = kAll;
  return form;
}

Form drain_form(const Descriptor& descriptor) {
  return {.flags = kCommon | 3U << 9 | flag::readback_1 | flag::readback_2 | flag::no_readback_1 |
                   flag::no_readback_2,
          .needs_record = true,
          .source = descriptor.has(flag::readback_1) ? kAll : 0,
          .destination = descriptor.has(flag::readback_2) ? kAll : 0};
}

// The expected result counts only with check_result (SPEC 8.3, "Compare").
Form compare_form(const Descriptor& descriptor) {
  const std::uint64_t expected = descriptor.has(flag::check_result) ? 1 : 0;
  return {.flags = kMemory | flag::check_result,
          .needs_record = true,
          .source = kAll,
          .destination = kAll,
          .size = kLow32,
          .extra = {expected, 0, 0}};
}

Form create_delta_form(const Descriptor& descriptor) {
  const std::uint64_t expected = descriptor.has(flag::check_result) ? 7 : 0;
  return {.flags = kMemory | kThirdAddress | kWrites | flag::check_result,
          .needs_record = true,
          .source = kAll,
          .destination = kAll,
          .size = kLow32,
          .extra = {kAll, kLow32, expected}};
}

Form copy_form() {
  return {.flags = kMemory | kWrites, .source = kAll, .destination = kAll, .size = kLow32};
}

Form fill_form(const Descriptor& descriptor) {
  Form form = copy_form();
  form.flags |= flag::pattern16;
  if (descriptor.has(flag::pattern16)) form.extra[0] = kAll;
  return form;
}

Form dualcast_form() {
  Form form = copy_form();
  form.flags |= kThirdAddress;
  form.extra[0] = kAll;
  return form;
}

Form apply_delta_form() {
  Form form = copy_form();
  form.extra[0] = kLow32;
  return form;
}

Form fetch_form(const Descriptor& descriptor) {
  return {.flags = kMemory | flag::use_stride,
          .source = kAll,
          .size = kLow32,
          .extra = {0, descriptor.has(flag::use_stride) ? kLow32 : 0, 0}};
}

// SPEC 8.3, each operation's figure. Nothing: an operation the emulator does not know; gather and
// scatter copy are among them, as no public source that could be read has their format.
std::optional<Form> form_of(const Descriptor& descriptor) {
  switch (descriptor.opcode()) {
    case Opcode::noop: return Form{.flags = kCommon};
    case Opcode::batch:
      return Form{.flags = kCommon | 1U << 9 | flag::batch_error, .source = kAll, .size = kLow32};
    case Opcode::drain: return drain_form(descriptor);
    case Opcode::memmove: return copy_form();
    case Opcode::fill: return fill_form(descriptor);
    case Opcode::compare:
    case Opcode::compare_pattern: return compare_form(descriptor);
    case Opcode::create_delta: return create_delta_form(descriptor);
    case Opcode::apply_delta: return apply_delta_form();
    case Opcode::dualcast: return dualcast_form();
    case Opcode::translation_fetch: return fetch_form(descriptor);
    case Opcode::crc: return crc_form(descriptor);
    case Opcode::copy_crc: return copy_crc_form(descriptor);
    case Opcode::cache_flush:
      return Form{.flags = kMemory | flag::to_cache, .destination = kAll, .size = kLow32};
    default: return std::nullopt;
  }
}

// Flags that are reserved because the device, or the queue, lacks the capability (SPEC 9.2.2).
std::uint32_t unsupported_flags(const Descriptor& descriptor, const Limits& limits) {
  const GeneralCapabilities& gen_cap = limits.gen_cap;
  std::uint32_t flags = 0;
  if (!limits.block_on_fault) flags |= flag::block_on_fault;
  if (!gen_cap.cache_control()) flags |= flag::to_cache;
  if (!gen_cap.readback()) flags |= flag::readback;
  switch (descriptor.opcode()) {
    case Opcode::batch:
      if (!gen_cap.batch_continuation()) flags |= flag::batch_error;
      break;
    case Opcode::drain:
      if (!gen_cap.drain_readback()) {
        flags |= flag::readback_1 | flag::readback_2 | flag::no_readback_1 | flag::no_readback_2;
      }
      break;
    case Opcode::fill:
      if (!gen_cap.fill16()) flags |= flag::pattern16;
      break;
    case Opcode::crc:
    case Opcode::copy_crc:
      if (!gen_cap.crc64()) flags |= flag::crc64;
      break;
    case Opcode::translation_fetch:
      if (!has_stride(gen_cap)) flags |= flag::use_stride;
      break;
    default: break;
  }
  return flags;
}

// SPEC table 8-3 and tables 5-3 to 5-5.
std::uint32_t invalid_flags(const Descriptor& descriptor, const Form& form, const Limits& limits,
                            bool in_batch) {
  std::uint32_t allowed = form.flags & ~unsupported_flags(descriptor, limits);
  if (in_batch) allowed |= flag::fence;  // "reserved in a descriptor that is not in a batch"
  std::uint32_t invalid = descriptor.flags() & ~allowed;
  const bool requested = descriptor.has(flag::request_record);
  // "must be 0 if the completion record address is not valid"; "must be 1" for those with a result.
  if (requested && !descriptor.has(flag::record_valid)) invalid |= flag::request_record;
  if (!requested && form.needs_record) invalid |= flag::request_record;
  return invalid;
}

// SPEC 8.1: what an operation does not use is reserved. The owner is filled in by ENQCMD, and is
// ignored in dedicated queues and in batches.
bool reserved_set(const Descriptor& descriptor, const Form& form) {
  bool set = (descriptor.source & ~form.source) != 0 ||
             (descriptor.destination & ~form.destination) != 0 ||
             (descriptor.size & ~form.size) != 0 || descriptor.reserved != 0;
  for (std::size_t i = 0; i < form.extra.size(); ++i) {
    set = set || (descriptor.extra[i] & ~form.extra[i]) != 0;
  }
  // Reserved without request for an interrupt, which a user must not make.
  return set || descriptor.interrupt != 0;
}

bool overlap(std::uint64_t a, std::uint64_t a_size, std::uint64_t b, std::uint64_t b_size) {
  return a < b + b_size && b < a + a_size;
}

bool multiple(std::uint64_t value, std::uint64_t of) { return value % of == 0; }

Code check_batch(const Descriptor& descriptor, const Limits& limits) {
  // SPEC 8.3.2; one alone with GENCAP.Batch1.
  const std::uint32_t least = limits.gen_cap.batch_of_one() ? 1 : 2;
  if (descriptor.size < least || descriptor.size > limits.max_batch) return Code::bad_count;
  return multiple(descriptor.source, sizeof(Descriptor)) ? Code::none : Code::list_alignment;
}

// SPEC 8.3, "Memory Copy with Dualcast".
Code check_dualcast(const Descriptor& descriptor) {
  const std::uint64_t second = descriptor.extra[0];
  const std::uint64_t size = descriptor.size;
  if (((descriptor.destination ^ second) & 0xfff) != 0) return Code::dualcast_alignment;
  const bool any = overlap(descriptor.source, size, descriptor.destination, size) ||
                   overlap(descriptor.source, size, second, size) ||
                   overlap(descriptor.destination, size, second, size);
  return any ? Code::overlap : Code::none;
}

Code check_create_delta(const Descriptor& descriptor, const Limits& limits) {
  const std::uint64_t size = descriptor.size;
  const std::uint64_t record = descriptor.extra[0];
  const std::uint64_t record_size = descriptor.extra[1];
  if (size > kMostDelta) return Code::bad_size;
  if (record_size < kLeastDeltaRecord) return Code::bad_value;
  if (!multiple(descriptor.source | descriptor.destination | size, 8)) return Code::bad_alignment;
  if (limits.delta_records_aligned && !multiple(record, 8)) return Code::bad_alignment;
  const bool any = overlap(record, record_size, descriptor.source, size) ||
                   overlap(record, record_size, descriptor.destination, size);
  return any ? Code::overlap : Code::none;
}

Code check_apply_delta(const Descriptor& descriptor, const Limits& limits) {
  const std::uint64_t size = descriptor.size;
  const std::uint64_t record_size = descriptor.extra[0];
  if (size > kMostDelta) return Code::bad_size;
  if (record_size == 0 || !multiple(record_size, kDelta)) return Code::bad_value;
  if (!multiple(descriptor.destination | size, 8)) return Code::bad_alignment;
  if (limits.delta_records_aligned && !multiple(descriptor.source, 8)) return Code::bad_alignment;
  return overlap(descriptor.source, record_size, descriptor.destination, size) ? Code::overlap
                                                                               : Code::none;
}

// Sizes, values, alignment and overlap of an operation that passed the rest.
Code check_values(const Descriptor& descriptor, const Limits& limits) {
  const Opcode opcode = descriptor.opcode();
  if (opcode == Opcode::noop || opcode == Opcode::drain) return Code::none;
  if (opcode == Opcode::batch) return check_batch(descriptor, limits);
  if (descriptor.size == 0 || descriptor.size > limits.max_transfer) return Code::bad_size;
  const bool overlaps =
      overlap(descriptor.source, descriptor.size, descriptor.destination, descriptor.size);
  switch (opcode) {
    case Opcode::memmove: return overlaps && !limits.gen_cap.overlap() ? Code::overlap : Code::none;
    case Opcode::copy_crc: return overlaps ? Code::overlap : Code::none;
    case Opcode::dualcast: return check_dualcast(descriptor);
    case Opcode::create_delta: return check_create_delta(descriptor, limits);
    case Opcode::apply_delta: return check_apply_delta(descriptor, limits);
    case Opcode::translation_fetch:
      return descriptor.has(flag::use_stride) && descriptor.extra[1] == 0 ? Code::bad_value
                                                                          : Code::none;
    default: return Code::none;
  }
}

}  // namespace

Limits limits_of(const DeviceSetup& setup, std::size_t queue) {
  const QueueSetup& of = setup.queues[queue];
  Limits limits;
  limits.gen_cap = setup.gen_cap;
  limits.operations = of.op_config ? *of.op_config & setup.op_cap : setup.op_cap;
  if (!of.batches_allowed) limits.operations.set(Opcode::batch, false);
  limits.block_on_fault = of.block_on_fault;
  limits.max_transfer = of.max_transfer;
  limits.max_batch = of.max_batch;
  limits.delta_records_aligned = setup.delta_records_aligned;
  return limits;
}

CheckResult check(const Descriptor& descriptor, const Limits& limits, bool in_batch) {
  const Opcode opcode = descriptor.opcode();
  const std::optional<Form> form = form_of(descriptor);
  // SPEC 3.9: no batch and no drain within a batch.
  const bool nested = in_batch && (opcode == Opcode::batch || opcode == Opcode::drain);
  if (!form || nested || !limits.operations.has(opcode)) return {Code::bad_opcode};
  const std::uint32_t invalid = invalid_flags(descriptor, *form, limits, in_batch);
  if (invalid != 0) return {Code::bad_flags, invalid};
  if (reserved_set(descriptor, *form)) return {Code::reserved_field};
  return {check_values(descriptor, limits)};
}

bool has_record(const Descriptor& descriptor) {
  return descriptor.has(flag::record_valid) && multiple(descriptor.record, sizeof(Record));
}

}  // namespace headrace::emulator
