// SPDX-License-Identifier: Apache-2.0
// When there is a completion record, and what is in it.
#include "tests/support/dsa/execute/perform.h"

#include "tests/support/dsa/device/device_testing.h"

namespace headrace::emulator {
namespace {

using namespace test;

class Perform : public testing::Test {
 protected:
  Performed run(const Descriptor& descriptor, InjectedFault injected = {}) {
    Task task;
    task.descriptor = descriptor;
    task.space = &client_.space;
    task.injected = injected;
    client_.clear_records();
    return perform(task, limits_);
  }
  const Record& record() const { return client_.records[0]; }
  Descriptor noop(std::uint32_t flags = kRecord) {
    return make(Opcode::noop, client_.records[0], flags);
  }

  TestClient client_;
  Limits limits_ = limits_of(sapphire_rapids(), 0);
};

// SPEC table 8-3: requested, or an error.
TEST_F(Perform, RecordsAreWrittenOnRequestOrError) {
  EXPECT_EQ(run(noop()).fate, Fate::written);
  EXPECT_EQ(record().status, 1);
  EXPECT_EQ(run(noop(flag::record_valid)).fate, Fate::suppressed);
  EXPECT_EQ(record().status, 0);
  Descriptor bad = noop(flag::record_valid);
  bad.size = 1;
  EXPECT_EQ(run(bad).fate, Fate::written);
  EXPECT_EQ(record().code(), Code::reserved_field);
  bad.set(Opcode::noop, 0);
  EXPECT_EQ(run(bad).fate, Fate::suppressed) << "not valid: never";
  EXPECT_EQ(record().status, 0);
}

// SPEC 8.2, code 0x1b: never in a record, and the operation is not executed.
TEST_F(Perform, AMisalignedRecordStopsAll) {
  Descriptor move =
      make_move(client_.memory.address(0), client_.memory.address(100), 50, client_.records[0]);
  client_.memory[0] = std::byte{7};
  move.record += 8;
  const Performed performed = run(move);
  EXPECT_EQ(performed.fate, Fate::lost);
  EXPECT_EQ(performed.status, static_cast<std::uint8_t>(Code::record_alignment));
  EXPECT_EQ(client_.memory[100], std::byte{0});
}

// SPEC 3.13, code 0x1a: no record either; with page requests its page is asked for.
TEST_F(Perform, ARecordThatCannotBeWrittenIsLost) {
  client_.memory[0] = std::byte{7};
  Descriptor move =
      make_move(client_.memory.address(0), client_.memory.address(100), 50, client_.records[0]);
  move.record = client_.memory.address(2 * kPage);
  client_.space.forbid(client_.memory.at(2 * kPage, 1));
  EXPECT_EQ(run(move).fate, Fate::lost);
  EXPECT_EQ(client_.memory[100], std::byte{7}) << "it was executed";
  client_.space.show_all();
  client_.space.hide(client_.memory.at(2 * kPage, 1));
  EXPECT_EQ(run(move).fate, Fate::written);
  client_.space.hide(client_.memory.at(2 * kPage, 1));
  limits_.block_on_fault = false;
  EXPECT_EQ(run(move).fate, Fate::lost);
}

// SPEC 8.2: fields besides the status are undefined, so nobody may use them.
TEST_F(Perform, ErrorsLeaveGarbage) {
  Descriptor bad = noop(kRecord | flag::check_result | flag::strict_order);
  run(bad);
  EXPECT_EQ(record().code(), Code::bad_flags);
  EXPECT_EQ(record().extra[0] & 0xffffff, flag::check_result | flag::strict_order);
  EXPECT_NE(record().completed, 0U);
  EXPECT_NE(record().fault_address, 0U);
}

TEST_F(Perform, Mishaps) {
  run(noop(), {.kind = InjectedFault::Kind::status, .status = 0x3b});
  EXPECT_EQ(record().status, 0x3b);
  EXPECT_EQ(run(noop(), {.kind = InjectedFault::Kind::lost_record}).fate, Fate::lost);
  EXPECT_EQ(record().status, 0);
  Descriptor move =
      make_move(client_.memory.address(0), client_.memory.address(100), 50, client_.records[0]);
  run(move, {.kind = InjectedFault::Kind::page_fault, .at = 20, .operand = 0});
  EXPECT_EQ(record().status, 0x03);
  EXPECT_EQ(record().completed, 20U);
  move.size = 0;
  run(move, {.kind = InjectedFault::Kind::status});
  EXPECT_EQ(record().code(), Code::bad_size) << "checks come first";
}

// SPEC 3.13: faults of a list are asked for, whatever the flag, where page requests are on.
TEST_F(Perform, ABatchYieldsItsList) {
  Descriptor list[2] = {noop(), noop()};
  std::memcpy(client_.memory.all().data(), list, sizeof(list));
  Descriptor batch = make(Opcode::batch, client_.records[0]);
  batch.source = client_.memory.address();
  batch.size = 2;
  client_.space.hide(client_.memory.all());
  Performed performed = run(batch);
  ASSERT_TRUE(performed.list);
  EXPECT_EQ(performed.list->descriptors.size(), 2U);
  EXPECT_EQ(performed.resolved, 1U);
  EXPECT_EQ(record().status, 0) << "its record comes at its end";
  client_.space.hide(client_.memory.all());
  limits_.block_on_fault = false;
  performed = run(batch);
  ASSERT_TRUE(performed.list && performed.list->fault);
  EXPECT_EQ(performed.list->descriptors.size(), 0U);
}

}  // namespace
}  // namespace headrace::emulator
