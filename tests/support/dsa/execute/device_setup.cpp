// SPDX-License-Identifier: Apache-2.0
#include "tests/support/dsa/execute/device_setup.h"

#include <cstddef>

#include "core/fail.h"

namespace headrace::emulator {
namespace {

// Bits of the register GENCAP that GeneralCapabilities has no names for (SPEC 9.2.2).
constexpr std::uint64_t kStride = std::uint64_t{1} << 7;
constexpr std::uint64_t kDrainReadback = std::uint64_t{1} << 9;
constexpr std::uint64_t kFill16 = std::uint64_t{1} << 10;
constexpr std::uint64_t kCrc64 = std::uint64_t{1} << 11;
constexpr std::uint64_t kBatchContinuation = std::uint64_t{1} << 15;
constexpr std::uint64_t kBatch1 = std::uint64_t{1} << 52;

// The largest "priority" of a work queue that sysfs takes.
constexpr unsigned kMaxPriority = 15;

Status check_queue(const DeviceSetup& setup, std::size_t number) {
  const QueueSetup& queue = setup.queues[number];
  if (queue.size == 0)
    return fail(ErrorCode::invalid, "queue {} has size 0; give it at least 1", number);
  if (queue.shared && (queue.threshold == 0 || queue.threshold > queue.size)) {
    return fail(ErrorCode::invalid, "queue {}: threshold {} is not within 1 to its size {}", number,
                queue.threshold, queue.size);
  }
  if (queue.group >= setup.groups.size()) {
    return fail(ErrorCode::invalid, "queue {} is in group {}, but there are {} groups", number,
                queue.group, setup.groups.size());
  }
  if (queue.priority == 0 || queue.priority > kMaxPriority) {
    return fail(ErrorCode::invalid, "queue {}: priority {} is not within 1 to {}", number,
                queue.priority, kMaxPriority);
  }
  if (queue.block_on_fault && !setup.gen_cap.block_on_fault()) {
    return fail(ErrorCode::invalid, "queue {}: the device cannot block on faults", number);
  }
  if (queue.max_transfer == 0 || queue.max_transfer > setup.gen_cap.max_transfer()) {
    return fail(ErrorCode::invalid, "queue {}: max_transfer {} is not within 1 to the device's {}",
                number, queue.max_transfer, setup.gen_cap.max_transfer());
  }
  if (queue.max_batch == 0 || queue.max_batch > setup.gen_cap.max_batch()) {
    return fail(ErrorCode::invalid, "queue {}: max_batch {} is not within 1 to the device's {}",
                number, queue.max_batch, setup.gen_cap.max_batch());
  }
  if (queue.op_config && (*queue.op_config & setup.op_cap) != *queue.op_config) {
    return fail(ErrorCode::invalid, "queue {}: op_config has operations that op_cap lacks", number);
  }
  return {};
}

}  // namespace

DeviceSetup sapphire_rapids() {
  DeviceSetup setup;
  setup.gen_cap.bits = 0x40915f0107;  // as the device reports it
  for (const Opcode opcode :
       {Opcode::noop, Opcode::batch, Opcode::drain, Opcode::memmove, Opcode::fill, Opcode::compare,
        Opcode::compare_pattern, Opcode::create_delta, Opcode::apply_delta, Opcode::dualcast,
        Opcode::crc, Opcode::copy_crc, Opcode::cache_flush}) {
    setup.op_cap.set(opcode);
  }
  setup.queues = {QueueSetup{.size = 128, .threshold = 128}};
  return setup;
}

DeviceSetup dsa2() {
  DeviceSetup setup = sapphire_rapids();
  setup.version = 0x200;
  setup.gen_cap.bits |= kStride | kDrainReadback | kFill16 | kCrc64 | kBatchContinuation;
  setup.op_cap.set(Opcode::translation_fetch);
  return setup;
}

DeviceSetup dsa3() {
  DeviceSetup setup = dsa2();
  setup.version = 0x300;
  setup.gen_cap.bits |= kBatch1;
  return setup;
}

Result<DeviceSetup> find_setup(std::string_view name) {
  if (name == "sapphire_rapids") return sapphire_rapids();
  if (name == "dsa2") return dsa2();
  if (name == "dsa3") return dsa3();
  return fail(ErrorCode::absent, "no device set-up '{}'; there are sapphire_rapids, dsa2, dsa3",
              name);
}

Status check(const DeviceSetup& setup) {
  if (setup.groups.empty() || setup.groups.size() > setup.max_groups) {
    return fail(ErrorCode::invalid, "{} groups; give 1 to {}", setup.groups.size(),
                setup.max_groups);
  }
  if (setup.queues.empty() || setup.queues.size() > setup.max_queues) {
    return fail(ErrorCode::invalid, "{} queues; give 1 to {}", setup.queues.size(),
                setup.max_queues);
  }
  unsigned engines = 0;
  for (const GroupSetup& group : setup.groups) engines += group.engines;
  if (engines > setup.max_engines) {
    return fail(ErrorCode::invalid, "{} engines in all groups; at most {}", engines,
                setup.max_engines);
  }
  unsigned size = 0;
  for (std::size_t i = 0; i < setup.queues.size(); ++i) {
    HEADRACE_TRY_STATUS(check_queue(setup, i));
    size += setup.queues[i].size;
    // Without an engine nothing would ever execute the queue's descriptors.
    if (setup.groups[setup.queues[i].group].engines == 0) {
      return fail(ErrorCode::invalid, "queue {}: its group {} has no engine", i,
                  setup.queues[i].group);
    }
  }
  if (size > setup.max_queues_size) {
    return fail(ErrorCode::invalid, "the queues hold {} descriptors together; at most {}", size,
                setup.max_queues_size);
  }
  return {};
}

}  // namespace headrace::emulator
