// SPDX-License-Identifier: Apache-2.0
#include "tests/support/dsa/execute.h"

#include <functional>
#include <vector>

#include "tests/support/dsa/testing.h"

namespace headrace::emulator {
namespace {

using namespace test;

class Execute : public testing::Test {
 protected:
  Record run(const Descriptor& descriptor, InjectedFault injected = {}, bool in_batch = false) {
    Executed executed = execute(descriptor, in_batch, queue_, client_.space, injected);
    list_ = std::move(executed.list);
    return executed.record;
  }
  Record move(std::size_t from, std::size_t to, std::uint32_t size, InjectedFault injected = {}) {
    return run(client_.move(from, to, size), injected);
  }
  std::vector<std::byte> bytes(std::size_t at, std::size_t size) {
    const auto part = client_.memory.all().subspan(at, size);
    return {part.begin(), part.end()};
  }

  Client client_;
  QueueSetup queue_;
  std::optional<DescriptorList> list_;
};

TEST_F(Execute, HostileDescriptors_EndWithTheirCode) {
  struct Case {
    Opcode opcode;
    Code code;
    std::function<void(Descriptor&)> spoil;
    bool in_batch = false;
  };
  const auto flags = [](std::uint32_t bits) { return [=](Descriptor& of) { of.command ^= bits; }; };
  const auto nothing = [](Descriptor&) {};
  const std::vector<Case> cases = {
      {Opcode::noop, Code::none, nothing},
      {Opcode::noop, Code::none, flags(flag::request_record)},
      {Opcode::memmove, Code::none, flags(flag::to_cache)},
      {Opcode::memmove, Code::none, [](Descriptor& of) { of.owner = 77; }},
      {Opcode::memmove, Code::none, nothing, true},
      {Opcode::batch, Code::none, nothing},
      {Opcode::batch, Code::bad_opcode, nothing, true},
      {static_cast<Opcode>(0x02), Code::bad_opcode, nothing},  // drain
      {static_cast<Opcode>(0xff), Code::bad_opcode, nothing},
      {Opcode::noop, Code::bad_flags, flags(flag::record_valid)},
      {Opcode::noop, Code::bad_flags, flags(flag::to_cache)},
      {Opcode::memmove, Code::bad_flags, flags(1U << 1)},  // block on fault
      {Opcode::memmove, Code::bad_flags, flags(1U << 23)},
      {Opcode::noop, Code::reserved_field, [](Descriptor& of) { of.size = 1; }},
      {Opcode::batch, Code::reserved_field, [](Descriptor& of) { of.destination = 64; }},
      {Opcode::memmove, Code::reserved_field, [](Descriptor& of) { of.reserved = 1; }},
      {Opcode::memmove, Code::reserved_field, [](Descriptor& of) { of.interrupt = 1; }},
      {Opcode::memmove, Code::reserved_field, [](Descriptor& of) { of.extra[2] = 1; }},
      {Opcode::memmove, Code::bad_size, [](Descriptor& of) { of.size = 0; }},
      {Opcode::memmove, Code::bad_size, [](Descriptor& of) { of.size = 0x80000001; }},
      {Opcode::batch, Code::bad_count, [](Descriptor& of) { of.size = 1; }},
      {Opcode::batch, Code::bad_count, [](Descriptor& of) { of.size = 1025; }},
      {Opcode::batch, Code::list_alignment, [](Descriptor& of) { of.source += 32; }},
      {Opcode::memmove, Code::record_alignment, [](Descriptor& of) { of.record += 8; }},
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i);
    const Case& each = cases[i];
    Descriptor of = client_.noop(0);
    if (each.opcode == Opcode::memmove) of = client_.move(0, kPage, 100);
    if (each.opcode == Opcode::batch) of = make_batch(client_.list, client_.records[0]);
    of.set(each.opcode, kRecord);
    each.spoil(of);
    const auto before = bytes(kPage, 100);
    const Record record = run(of, {}, each.in_batch);
    const bool well = each.code == Code::none;
    EXPECT_EQ(list_.has_value(), well && each.opcode == Opcode::batch);
    if (list_) continue;
    EXPECT_EQ(record.code(), well ? Code::success : each.code);
    if (well) continue;
    EXPECT_NE(record.completed, 0U) << "undefined";
    EXPECT_EQ(bytes(kPage, 100), before);
  }
  queue_.batches_allowed = false;
  EXPECT_EQ(run(make_batch(client_.list, client_.records[0])).code(), Code::bad_opcode);
}

// SPEC 3.6, 8.3: the record says how far the copy came; backwards (result 1) the rest is in front.
TEST_F(Execute, Move_StopsAtAPageThatIsMissing) {
  const auto source = bytes(0, 9000);
  client_.memory.protect(5, PROT_READ);
  Record record = move(0, 4 * kPage + 50, 9000);
  EXPECT_EQ(record.status, 0x83);
  EXPECT_EQ(record.result, 0);
  EXPECT_EQ(record.completed, kPage - 50);
  EXPECT_EQ(record.fault_address, client_.memory.address(5 * kPage));
  EXPECT_EQ(bytes(4 * kPage + 50, kPage - 50),
            std::vector(source.begin(), source.begin() + kPage - 50));
  client_.memory.protect(1, PROT_NONE);
  record = move(100, 1100, 9000);
  EXPECT_EQ(record.status, 0x03);
  EXPECT_EQ(record.result, 1);
  EXPECT_EQ(record.completed, 9100 - 2 * kPage);
  EXPECT_EQ(record.fault_address, client_.memory.address(kPage));
  record = run(make_move(0, client_.memory.address(), 8, client_.records[0]));
  EXPECT_EQ(record.status, 0x03) << "a null pointer is a fault like any other";
}

TEST_F(Execute, Move_StopsAtAPlantedFault) {
  using Kind = InjectedFault::Kind;
  for (const bool in_writing : {false, true}) {
    const InjectedFault fault{.kind = Kind::page_fault, .at = 5000, .in_writing = in_writing};
    const Record record = move(0, 8 * kPage, 9000, fault);
    EXPECT_EQ(record.status, in_writing ? 0x83 : 0x03);
    EXPECT_EQ(record.completed, 5000U);
    EXPECT_EQ(record.fault_address, client_.memory.address((in_writing ? 9 : 1) * kPage));
  }
  EXPECT_EQ(move(0, 8 * kPage, 100, {.kind = Kind::page_fault, .at = 100}).code(), Code::success);
  EXPECT_EQ(move(0, kPage, 0, {.kind = Kind::status}).code(), Code::bad_size) << "checks are first";
  EXPECT_EQ(move(0, kPage, 9, {.kind = Kind::status, .status = 0x3b}).status, 0x3b);
}

// SPEC table 8-3, 8.2.
TEST_F(Execute, Record_IsWrittenOnRequestOrError) {
  const Record well{.status = 1};
  const Record bad{.status = 0x10, .result = 9, .completed = 7, .fault_address = 5};
  Record& seen = client_.records[0];
  Descriptor of = client_.noop(0);
  EXPECT_TRUE(deliver(of, bad, client_.space, {}));
  EXPECT_EQ(std::memcmp(&seen, &bad, sizeof(bad)), 0);
  seen = {};
  EXPECT_FALSE(deliver(of, well, client_.space, {.kind = InjectedFault::Kind::lost_record}));
  of.set(Opcode::noop, flag::record_valid);
  EXPECT_TRUE(deliver(of, well, client_.space, {})) << "not requested";
  EXPECT_EQ(seen.status, 0);
  EXPECT_TRUE(deliver(of, bad, client_.space, {}));
  EXPECT_EQ(seen.status, 0x10);
  of.set(Opcode::noop, 0);
  EXPECT_TRUE(deliver(of, bad, client_.space, {})) << "no address";
  of = client_.noop(0);
  of.record += 8;
  EXPECT_FALSE(deliver(of, well, client_.space, {}));
}

// SPEC 3.13.
TEST_F(Execute, Record_OnAMissingPage_IsAskedFor) {
  Descriptor of = client_.noop(0);
  of.record = client_.memory.address(2 * kPage);
  client_.memory.hide(2);
  EXPECT_TRUE(deliver(of, {.status = 1}, client_.space, {}));
  EXPECT_EQ(client_.memory[2 * kPage], std::byte{1});
  client_.memory.protect(2, PROT_NONE);
  EXPECT_FALSE(deliver(of, {.status = 1}, client_.space, {}));
}

TEST_F(Execute, Batch_ReadsItsListUpToAFault) {
  Descriptor batch = make_batch(client_.list, client_.records[0]);
  run(batch);
  ASSERT_TRUE(list_);
  EXPECT_EQ(list_->descriptors.size(), client_.list.size());
  EXPECT_FALSE(list_->fault);
  run(batch, {.kind = InjectedFault::Kind::page_fault, .at = 200});
  EXPECT_EQ(list_->descriptors.size(), 3U);
  batch.source = client_.memory.address(kPage - 2 * 64);
  client_.memory.protect(1, PROT_NONE);
  run(batch);
  EXPECT_EQ(list_->descriptors.size(), 2U);
  EXPECT_EQ(list_->fault, client_.memory.address(kPage));
}

TEST(Draw, FaultsLieWithinTheBytes) {
  Random random(1);
  Descriptor move;
  move.set(Opcode::memmove, 0);
  move.size = 100;
  Descriptor batch;
  batch.set(Opcode::batch, 0);
  batch.size = 10;
  std::uint32_t most = 0;
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(draw({}, move, random).kind, InjectedFault::Kind::none);
    EXPECT_LT(draw({.page_fault_chance = 1}, move, random).at, 100U);
    most = std::max(most, draw({.page_fault_chance = 1}, batch, random).at);
  }
  EXPECT_GT(most, 576U);
  EXPECT_LT(most, 640U);
  EXPECT_EQ(draw({.hardware_chance = 1}, move, random).status, 0x20);
  EXPECT_EQ(draw({.unknown_status_chance = 1}, move, random).status, 0x3b);
  EXPECT_EQ(draw({.lost_record_chance = 1}, move, random).kind, InjectedFault::Kind::lost_record);
}

}  // namespace
}  // namespace headrace::emulator
