// SPDX-License-Identifier: Apache-2.0
// One test per rule of the specification about what a descriptor may be.
#include "tests/support/dsa/execute/checks.h"

#include "tests/support/dsa/device/device_testing.h"

namespace headrace::emulator {
namespace {

using namespace test;

constexpr Opcode kAllOpcodes[] = {Opcode::noop,
                                  Opcode::batch,
                                  Opcode::drain,
                                  Opcode::memmove,
                                  Opcode::fill,
                                  Opcode::compare,
                                  Opcode::compare_pattern,
                                  Opcode::create_delta,
                                  Opcode::apply_delta,
                                  Opcode::dualcast,
                                  Opcode::translation_fetch,
                                  Opcode::crc,
                                  Opcode::copy_crc,
                                  Opcode::cache_flush};

// One that is well, of any kind; nothing overlaps.
Descriptor well(Opcode opcode) {
  Descriptor descriptor;
  descriptor.set(opcode, kRecord);
  descriptor.record = 0x1000;
  if (opcode == Opcode::noop || opcode == Opcode::drain) return descriptor;
  descriptor.size = opcode == Opcode::batch ? 2 : 4096;
  if (opcode != Opcode::cache_flush) descriptor.source = 0x100000;
  if (opcode == Opcode::batch || opcode == Opcode::crc || opcode == Opcode::translation_fetch) {
    return descriptor;
  }
  descriptor.destination = 0x200000;
  if (opcode == Opcode::dualcast) descriptor.extra[0] = 0x300000;
  if (opcode == Opcode::apply_delta) descriptor.extra[0] = 20;
  if (opcode == Opcode::create_delta) descriptor.extra = {0x300000, 80, 0};
  return descriptor;
}

class Checks : public testing::Test {
 protected:
  Code code(const Descriptor& descriptor, bool in_batch = false) const {
    return check(descriptor, limits_, in_batch).code;
  }
  Limits limits_ = limits_of(dsa3(), 0);
};

TEST_F(Checks, WellFormedOnesPass) {
  for (const Opcode opcode : kAllOpcodes)
    EXPECT_EQ(code(well(opcode)), Code::none) << to_string(opcode);
}

// SPEC table 8-2; op_cap and op_config say which of them.
TEST_F(Checks, OperationsThatTheQueueDoesNotHave) {
  EXPECT_EQ(code(well(Opcode::gather_copy)), Code::bad_opcode);
  EXPECT_EQ(code(well(Opcode::scatter_copy)), Code::bad_opcode);
  EXPECT_EQ(code(well(static_cast<Opcode>(0x0b))), Code::bad_opcode);
  EXPECT_EQ(code(well(static_cast<Opcode>(0xff))), Code::bad_opcode);
  limits_ = limits_of(sapphire_rapids(), 0);
  EXPECT_EQ(code(well(Opcode::translation_fetch)), Code::bad_opcode);
  DeviceSetup setup = sapphire_rapids();
  setup.queues[0].op_config = Opcodes{};
  setup.queues[0].op_config->set(Opcode::fill);
  limits_ = limits_of(setup, 0);
  EXPECT_EQ(code(well(Opcode::fill)), Code::none);
  EXPECT_EQ(code(well(Opcode::memmove)), Code::bad_opcode);
  setup = sapphire_rapids();
  setup.queues[0].batches_allowed = false;
  limits_ = limits_of(setup, 0);
  EXPECT_EQ(code(well(Opcode::batch)), Code::bad_opcode);
}

// SPEC 3.9.
TEST_F(Checks, NoBatchAndNoDrainWithinABatch) {
  EXPECT_EQ(code(well(Opcode::batch), true), Code::bad_opcode);
  EXPECT_EQ(code(well(Opcode::drain), true), Code::bad_opcode);
  EXPECT_EQ(code(well(Opcode::noop), true), Code::none);
}

// SPEC table 8-3 and tables 5-3 to 5-5: the flags each operation may have on a device with all
// capabilities, except those about records and traffic classes, which are below.
std::uint32_t flags_allowed(Opcode opcode) {
  const std::uint32_t block = flag::block_on_fault;
  const std::uint32_t writes = flag::to_cache | flag::strict_order | flag::readback;
  const std::uint32_t sum =
      flag::read_seed | flag::no_reflection | flag::no_data_reflection | flag::crc64;
  switch (opcode) {
    case Opcode::noop: return 0;
    case Opcode::batch: return flag::batch_error;
    case Opcode::drain: return 0xf0000;
    case Opcode::compare:
    case Opcode::compare_pattern: return block | flag::check_result;
    case Opcode::create_delta: return block | flag::check_result | writes;
    case Opcode::fill: return block | writes | flag::pattern16;
    case Opcode::crc: return block | sum;
    case Opcode::copy_crc: return block | sum | writes;
    case Opcode::translation_fetch: return block | flag::use_stride;
    case Opcode::cache_flush: return block | flag::to_cache;
    default: return block | writes;
  }
}

TEST_F(Checks, FlagsByOperation) {
  const std::uint32_t apart = kRecord | flag::traffic_classes;
  for (const Opcode opcode : kAllOpcodes) {
    for (unsigned bit = 0; bit < 24; ++bit) {
      const std::uint32_t flag = 1U << bit;
      if ((apart & flag) != 0) continue;
      Descriptor descriptor = well(opcode);
      descriptor.command |= flag;
      const CheckResult checked = check(descriptor, limits_, false);
      const bool allowed = (flags_allowed(opcode) & flag) != 0;
      // A flag may demand a field that is 0 here; that is another rule.
      EXPECT_EQ(checked.code != Code::bad_flags, allowed) << to_string(opcode) << " bit " << bit;
      EXPECT_EQ(checked.invalid_flags, allowed ? 0 : flag) << "the record says which";
    }
  }
}

TEST_F(Checks, AFenceIsForBatches) {
  for (const Opcode opcode : kAllOpcodes) {
    Descriptor descriptor = well(opcode);
    descriptor.command |= flag::fence;
    EXPECT_EQ(code(descriptor), Code::bad_flags);
    const bool nested = opcode == Opcode::batch || opcode == Opcode::drain;
    EXPECT_EQ(code(descriptor, true), nested ? Code::bad_opcode : Code::none);
  }
}

// SPEC table 8-3: a record can be requested only where there is one, and must be for operations
// with a result.
TEST_F(Checks, RecordsAreRequestedWhereThereIsAResult) {
  for (const Opcode opcode : kAllOpcodes) {
    Descriptor descriptor = well(opcode);
    descriptor.set(opcode, flag::request_record);
    EXPECT_EQ(check(descriptor, limits_, false).invalid_flags, flag::request_record);
    const bool result = opcode == Opcode::drain || opcode == Opcode::compare ||
                        opcode == Opcode::compare_pattern || opcode == Opcode::create_delta ||
                        opcode == Opcode::crc || opcode == Opcode::copy_crc;
    descriptor.set(opcode, flag::record_valid);
    EXPECT_EQ(code(descriptor), result ? Code::bad_flags : Code::none) << to_string(opcode);
    descriptor.set(opcode, 0);
    EXPECT_EQ(code(descriptor), result ? Code::bad_flags : Code::none);
  }
}

// SPEC 9.2.2: without the capability the flag is reserved.
TEST_F(Checks, FlagsOfCapabilities) {
  const auto flagged = [](Opcode opcode, std::uint32_t flag) {
    Descriptor descriptor = well(opcode);
    descriptor.command |= flag;
    return descriptor;
  };
  const struct {
    unsigned bit;
    Descriptor descriptor;
  } cases[] = {
      {2, flagged(Opcode::memmove, flag::to_cache)},
      {7,
       [&] {
         Descriptor stride = flagged(Opcode::translation_fetch, flag::use_stride);
         stride.extra[1] = 8192;
         return stride;
       }()},
      {8, flagged(Opcode::memmove, flag::readback)},
      {9, flagged(Opcode::drain, flag::readback_1)},
      {9, flagged(Opcode::drain, flag::no_readback_2)},
      {10, flagged(Opcode::fill, flag::pattern16)},
      {11, flagged(Opcode::crc, flag::crc64)},
      {15, flagged(Opcode::batch, flag::batch_error)},
  };
  for (const auto& each : cases) {
    Limits limits = limits_;
    EXPECT_EQ(check(each.descriptor, limits, false).code, Code::none) << "GENCAP bit " << each.bit;
    limits.gen_cap.bits &= ~(std::uint64_t{1} << each.bit);
    EXPECT_EQ(check(each.descriptor, limits, false).code, Code::bad_flags)
        << "GENCAP bit " << each.bit;
  }
  limits_.block_on_fault = false;  // of the queue
  EXPECT_EQ(code(flagged(Opcode::memmove, flag::block_on_fault)), Code::bad_flags);
}

// SPEC 8.1: all that an operation does not use is 0.
TEST_F(Checks, ReservedFields) {
  for (const Opcode opcode : kAllOpcodes) {
    Descriptor interrupt = well(opcode);
    interrupt.interrupt = 1;
    EXPECT_EQ(code(interrupt), Code::reserved_field);
    Descriptor reserved = well(opcode);
    reserved.reserved = 1;
    EXPECT_EQ(code(reserved), Code::reserved_field);
    Descriptor last = well(opcode);
    last.extra[2] |= std::uint64_t{1} << 63;
    EXPECT_EQ(code(last), Code::reserved_field) << to_string(opcode);
    Descriptor owned = well(opcode);
    owned.owner = 0xffffffff;
    EXPECT_EQ(code(owned), Code::none) << "the CPU fills it in";
  }
  Descriptor descriptor = well(Opcode::noop);
  descriptor.source = 1;
  EXPECT_EQ(code(descriptor), Code::reserved_field);
  descriptor = well(Opcode::crc);
  descriptor.destination = 0x1000;
  EXPECT_EQ(code(descriptor), Code::reserved_field);
  descriptor = well(Opcode::cache_flush);
  descriptor.source = 0x1000;
  EXPECT_EQ(code(descriptor), Code::reserved_field);
  descriptor = well(Opcode::fill);
  descriptor.extra[0] = 1;
  EXPECT_EQ(code(descriptor), Code::reserved_field) << "an 8-byte pattern has no upper half";
  descriptor = well(Opcode::drain);
  descriptor.destination = 0x1000;
  EXPECT_EQ(code(descriptor), Code::reserved_field) << "no readback address 2";
}

// SPEC 8.3, "Compare", "Create Delta Record": the expected result counts with check_result only.
TEST_F(Checks, ExpectedResults) {
  Descriptor compare = well(Opcode::compare);
  compare.extra[0] = 1;
  EXPECT_EQ(code(compare), Code::reserved_field);
  compare.command |= flag::check_result;
  EXPECT_EQ(code(compare), Code::none);
  compare.extra[0] = 2;
  EXPECT_EQ(code(compare), Code::reserved_field);
  Descriptor delta = well(Opcode::create_delta);
  delta.extra[2] = 7;
  EXPECT_EQ(code(delta), Code::reserved_field);
  delta.command |= flag::check_result;
  EXPECT_EQ(code(delta), Code::none);
}

// SPEC 8.3, "CRC Generation": a seed from the descriptor or from memory.
TEST_F(Checks, Seeds) {
  Descriptor crc = well(Opcode::crc);
  crc.extra[0] = 0xffffffff;
  EXPECT_EQ(code(crc), Code::none);
  crc.extra[0] = 0x100000000;
  EXPECT_EQ(code(crc), Code::reserved_field);
  crc.command |= flag::crc64;
  EXPECT_EQ(code(crc), Code::none);
  crc.command |= flag::read_seed;
  EXPECT_EQ(code(crc), Code::reserved_field);
  crc.extra = {0, 0x1000, 0};
  EXPECT_EQ(code(crc), Code::none);
  crc.command &= ~flag::read_seed;
  EXPECT_EQ(code(crc), Code::reserved_field);
}

// SPEC table 8-9, code 0x13: 0, or more than the queue's maximum.
TEST_F(Checks, TransferSizes) {
  limits_.max_transfer = 8192;
  for (const Opcode opcode : kAllOpcodes) {
    if (opcode == Opcode::noop || opcode == Opcode::drain || opcode == Opcode::batch) continue;
    Descriptor descriptor = well(opcode);
    descriptor.size = 0;
    EXPECT_EQ(code(descriptor), Code::bad_size) << to_string(opcode);
    descriptor.size = 8192;
    EXPECT_EQ(code(descriptor), Code::none) << to_string(opcode);
    descriptor.size = 8200;
    EXPECT_EQ(code(descriptor), Code::bad_size) << to_string(opcode);
  }
}

// SPEC 8.3.2: 2 to the queue's maximum, 1 with GENCAP.Batch1; a list at a multiple of 64.
TEST_F(Checks, Batches) {
  limits_.max_batch = 16;
  Descriptor batch = well(Opcode::batch);
  const auto sized = [&](std::uint32_t size) {
    batch.size = size;
    return code(batch);
  };
  EXPECT_EQ(sized(0), Code::bad_count);
  EXPECT_EQ(sized(1), Code::none);
  EXPECT_EQ(sized(16), Code::none);
  EXPECT_EQ(sized(17), Code::bad_count);
  limits_.gen_cap = dsa2().gen_cap;
  EXPECT_EQ(sized(1), Code::bad_count);
  EXPECT_EQ(sized(2), Code::none);
  batch.source += 32;
  EXPECT_EQ(code(batch), Code::list_alignment);
}

TEST_F(Checks, Overlap) {
  Descriptor move = well(Opcode::memmove);
  move.destination = move.source + 4095;
  EXPECT_EQ(code(move), Code::none) << "GENCAP bit 1";
  limits_.gen_cap.bits &= ~std::uint64_t{2};
  EXPECT_EQ(code(move), Code::overlap);
  move.destination = move.source + 4096;
  EXPECT_EQ(code(move), Code::none);
  Descriptor copy = well(Opcode::copy_crc);
  copy.destination = copy.source - 4095;
  EXPECT_EQ(code(copy), Code::overlap);
  Descriptor compare = well(Opcode::compare);
  compare.destination = compare.source + 1;
  EXPECT_EQ(code(compare), Code::none) << "both are only read";
}

// SPEC 8.3, "Memory Copy with Dualcast": equal bits 11:0, three regions apart.
TEST_F(Checks, Dualcast) {
  Descriptor descriptor = well(Opcode::dualcast);
  descriptor.extra[0] += 8;
  EXPECT_EQ(code(descriptor), Code::dualcast_alignment);
  descriptor.extra[0] = descriptor.destination;
  EXPECT_EQ(code(descriptor), Code::overlap);
  descriptor.extra[0] = descriptor.source;
  EXPECT_EQ(code(descriptor), Code::overlap);
  descriptor = well(Opcode::dualcast);
  descriptor.source = descriptor.destination + 4000;
  EXPECT_EQ(code(descriptor), Code::overlap);
}

// SPEC 8.3, "Create Delta Record".
TEST_F(Checks, CreateDelta) {
  const auto with = [&](auto change) {
    Descriptor descriptor = well(Opcode::create_delta);
    change(descriptor);
    return code(descriptor);
  };
  EXPECT_EQ(with([](auto& d) { d.source += 4; }), Code::bad_alignment);
  EXPECT_EQ(with([](auto& d) { d.destination += 1; }), Code::bad_alignment);
  EXPECT_EQ(with([](auto& d) { d.size = 4092; }), Code::bad_alignment);
  EXPECT_EQ(with([](auto& d) { d.size = 512 << 10; }), Code::none);
  EXPECT_EQ(with([](auto& d) { d.size = (512 << 10) + 8; }), Code::bad_size);
  EXPECT_EQ(with([](auto& d) { d.extra[1] = 79; }), Code::bad_value);
  EXPECT_EQ(with([](auto& d) { d.extra[0] = d.source + 4088; }), Code::overlap);
  EXPECT_EQ(with([](auto& d) { d.extra[0] = d.destination; }), Code::overlap);
  EXPECT_EQ(with([](auto& d) { d.destination = d.source; }), Code::none);
  EXPECT_EQ(with([](auto& d) { d.extra[0] += 10; }), Code::none) << "so that it can be resumed";
  limits_.delta_records_aligned = true;
  EXPECT_EQ(with([](auto& d) { d.extra[0] += 10; }), Code::bad_alignment);
}

// SPEC 8.3, "Apply Delta Record".
TEST_F(Checks, ApplyDelta) {
  const auto with = [&](auto change) {
    Descriptor descriptor = well(Opcode::apply_delta);
    change(descriptor);
    return code(descriptor);
  };
  EXPECT_EQ(with([](auto& d) { d.extra[0] = 0; }), Code::bad_value);
  EXPECT_EQ(with([](auto& d) { d.extra[0] = 15; }), Code::bad_value);
  EXPECT_EQ(with([](auto& d) { d.destination += 4; }), Code::bad_alignment);
  EXPECT_EQ(with([](auto& d) { d.size += 4; }), Code::bad_alignment);
  EXPECT_EQ(with([](auto& d) { d.size = (512 << 10) + 8; }), Code::bad_size);
  EXPECT_EQ(with([](auto& d) { d.source = d.destination - 16; }), Code::overlap);
  EXPECT_EQ(with([](auto& d) { d.source += 10; }), Code::none);
  limits_.delta_records_aligned = true;
  EXPECT_EQ(with([](auto& d) { d.source += 10; }), Code::bad_alignment);
}

TEST_F(Checks, AStrideIsNotZero) {
  Descriptor descriptor = well(Opcode::translation_fetch);
  descriptor.extra[1] = 4096;
  EXPECT_EQ(code(descriptor), Code::reserved_field);
  descriptor.command |= flag::use_stride;
  EXPECT_EQ(code(descriptor), Code::none);
  descriptor.extra[1] = 0;
  EXPECT_EQ(code(descriptor), Code::bad_value);
}

// Only the first of several errors is reported, in the order of checks.h.
TEST_F(Checks, TheOrderOfErrors) {
  Descriptor descriptor = well(Opcode::memmove);
  limits_.gen_cap.bits &= ~std::uint64_t{2};
  descriptor.destination = descriptor.source;
  EXPECT_EQ(code(descriptor), Code::overlap);
  descriptor.size = 0;
  EXPECT_EQ(code(descriptor), Code::bad_size);
  descriptor.reserved = 1;
  EXPECT_EQ(code(descriptor), Code::reserved_field);
  descriptor.command |= flag::fence;
  EXPECT_EQ(code(descriptor), Code::bad_flags);
  limits_.operations = {};
  EXPECT_EQ(code(descriptor), Code::bad_opcode);
}

// SPEC 8.2.
TEST_F(Checks, RecordsLieAtMultiplesOf32) {
  Descriptor descriptor = well(Opcode::noop);
  EXPECT_TRUE(has_record(descriptor));
  descriptor.record += 16;
  EXPECT_FALSE(has_record(descriptor));
  descriptor = well(Opcode::noop);
  descriptor.set(Opcode::noop, 0);
  EXPECT_FALSE(has_record(descriptor));
}

}  // namespace
}  // namespace headrace::emulator
