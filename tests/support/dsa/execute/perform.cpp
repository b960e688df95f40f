// SPDX-License-Identifier: Apache-2.0
#include "tests/support/dsa/execute/perform.h"

#include "tests/support/dsa/execute/operations.h"

namespace headrace::emulator {
namespace {

// "Undefined" in a record: neither 0 nor a plausible count or address.
constexpr std::uint8_t kUndefined8 = 0xa5;
constexpr std::uint32_t kUndefined32 = 0xa5a5a5a5;
constexpr std::uint64_t kUndefined64 = 0xa5a5a5a5a5a5a5a5;

// SPEC 8.2: for errors other than faults all fields but the status are undefined, and the invalid
// flags of status 0x11.
Record refused(std::uint8_t status) {
  Record record{.status = status,
                .result = kUndefined8,
                .fault_info = kUndefined8,
                .reserved = kUndefined8,
                .completed = kUndefined32,
                .fault_address = kUndefined64};
  record.extra = {kUndefined64, kUndefined64};
  return record;
}

Record refused(const CheckResult& checked) {
  Record record = refused(static_cast<std::uint8_t>(checked.code));
  if (checked.code == Code::bad_flags) {
    record.extra[0] = (kUndefined64 & ~std::uint64_t{0xffffff}) | checked.invalid_flags;
  }
  return record;
}

bool is_success(std::uint8_t status) {
  return status == static_cast<std::uint8_t>(Code::success) ||
         status == static_cast<std::uint8_t>(Code::success_false);
}

}  // namespace

Fate deliver(const Task& task, const Record& record, const Limits& limits) {
  const Descriptor& descriptor = task.descriptor;
  if (!descriptor.has(flag::record_valid)) return Fate::suppressed;
  if (is_success(record.status) && !descriptor.has(flag::request_record)) return Fate::suppressed;
  if (!has_record(descriptor)) return Fate::lost;
  if (task.injected.kind == InjectedFault::Kind::lost_record) return Fate::lost;
  if (task.space->write_record(descriptor.record, record)) return Fate::written;
  // SPEC 3.13: faults of records are always asked for, where page requests are on at all.
  const bool asked = limits.block_on_fault && task.space->resolve(descriptor.record, Touch::write);
  return asked && task.space->write_record(descriptor.record, record) ? Fate::written : Fate::lost;
}

Performed perform(const Task& task, const Limits& limits) {
  const Descriptor& descriptor = task.descriptor;
  Performed performed;
  const CheckResult checked = check(descriptor, limits, task.batch != nullptr);
  Record record;
  if (descriptor.has(flag::record_valid) && !has_record(descriptor)) {
    record = refused(static_cast<std::uint8_t>(Code::record_alignment));
  } else if (checked.code != Code::none) {
    record = refused(checked);
  } else if (task.injected.kind == InjectedFault::Kind::status) {
    record = refused(task.injected.status);
  } else if (descriptor.opcode() == Opcode::batch) {
    // SPEC 3.13: faults of the list are always asked for.
    Access access(*task.space, limits.block_on_fault, task.injected);
    performed.list = fetch_list(descriptor, access);
    performed.resolved = access.resolved();
    return performed;
  } else {
    Access access(*task.space, descriptor.has(flag::block_on_fault), task.injected);
    record = execute(descriptor, access);
    performed.resolved = access.resolved();
  }
  performed.status = record.status;
  performed.fate = deliver(task, record, limits);
  return performed;
}

}  // namespace headrace::emulator
