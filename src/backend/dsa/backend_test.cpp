// SPDX-License-Identifier: Apache-2.0
#include "headrace/backend.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <utility>

#include "backend/dsa/dsa.h"
#include "backend/dsa/queue/portal_testing.h"
#include "tests/support/manual_waiting.h"

namespace headrace {
namespace {

using dsa::test::HeldDevice;

constexpr EngineId kCore{0};
constexpr EngineId kFirst{1};
constexpr EngineId kSecond{2};
constexpr NodeId kNode{0};

Machine machine_with_dsa() {
  Machine machine;
  machine.nodes = {{.id = kNode, .kind = NodeKind::dram, .name = "node 0"}};
  machine.engines = {{.id = kCore, .kind = EngineKind::cpu, .name = "cpu0", .home = kNode},
                     {.id = kFirst, .kind = EngineKind::dsa, .name = "dsa0", .home = kNode},
                     {.id = kSecond, .kind = EngineKind::dsa, .name = "dsa1", .home = kNode}};
  return machine;
}

class Heard final : public Completion {
 public:
  void complete(std::uint64_t tag, Status outcome) noexcept override {
    ++times[tag];
    if (!outcome) errors[tag] = outcome.error().code;
    if (then) std::exchange(then, nullptr)();
  }
  std::map<std::uint64_t, int> times;
  std::map<std::uint64_t, ErrorCode> errors;
  std::function<void()> then;
};

class OpenDsaTest : public testing::Test {
 protected:
  OpenDsaTest() {
    for (std::size_t i = 0; i < from_.size(); ++i) from_[i] = static_cast<std::byte>(i * 7);
  }

  Result<std::unique_ptr<Backend>> open(std::vector<dsa::WorkQueue> queues,
                                        Nanoseconds limit = std::chrono::milliseconds{1}) {
    const dsa::Device device{.name = "dsa0", .queues = std::move(queues)};
    return open_dsa(machine_, {kFirst},
                    {.devices = std::vector{device},
                     .open = held_.opener(),
                     .limit = limit,
                     .clock = &clock_,
                     .waiting = &waiting_});
  }
  Piece piece(std::size_t at, std::size_t bytes, std::uint64_t tag) const {
    return {.from = {&from_range_, at, Bytes{bytes}},
            .to = {&to_range_, at, Bytes{bytes}},
            .engine = kFirst,
            .tag = tag};
  }
  void copy_all() {
    for (const dsa::Descriptor& each : std::exchange(held_.taken, {})) {
      if (each.opcode() != dsa::Opcode::batch) {
        dsa::test::copy(each);
        continue;
      }
      for (const dsa::Descriptor& member : dsa::test::list_of(each)) dsa::test::copy(member);
      dsa::test::answer(each, dsa::Code::success);
    }
  }

  const Machine machine_ = machine_with_dsa();
  ManualClock clock_;
  test::ManualWaiting waiting_{clock_};
  HeldDevice held_;
  Heard heard_;
  std::vector<std::byte> from_ = std::vector<std::byte>(4096);
  std::vector<std::byte> to_ = std::vector<std::byte>(4096);
  const MemoryRange from_range_{from_, kNode};
  const MemoryRange to_range_{to_, kNode};
};

TEST_F(OpenDsaTest, CopiesAndTellsEachOnce) {
  const auto backend = open({dsa::test::held_queue()}).value();
  EXPECT_EQ(backend->capabilities().name, "dsa");
  EXPECT_EQ(backend->capabilities().max_in_flight, 64U);
  EXPECT_EQ(backend->capabilities().note, "dsa0: shared wq0.0 by held");
  const std::vector<Piece> pieces = {piece(0, 2000, 1), piece(2000, 2096, 2)};
  EXPECT_EQ(backend->submit(pieces, heard_).value_or(0), 2U);
  EXPECT_EQ(backend->poll(), 0U);
  copy_all();
  EXPECT_EQ(backend->poll(), 2U);
  EXPECT_EQ(heard_.times, (std::map<std::uint64_t, int>{{1, 1}, {2, 1}}));
  EXPECT_TRUE(heard_.errors.empty());
  EXPECT_EQ(from_, to_);
}

TEST_F(OpenDsaTest, NoMoreInFlightThanTheQueueHas) {
  const auto backend = open({dsa::test::held_queue("wq0.0", 5000)}).value();
  EXPECT_EQ(backend->capabilities().max_in_flight, 1024U) << "records for no more";
}

// A completion inside submit() submits again; the later pieces must still be those of the first
// call.
TEST_F(OpenDsaTest, WhatACompletionSubmitsMixesNothingUp) {
  const auto backend = open({dsa::test::held_queue()}).value();
  const std::vector<Piece> pieces = {piece(0, 0, 1), piece(0, 2048, 2)};
  const std::vector<Piece> more = {piece(2048, 2048, 3)};
  heard_.then = [&] { EXPECT_EQ(backend->submit(more, heard_).value_or(0), 1U); };
  EXPECT_EQ(backend->submit(pieces, heard_).value_or(0), 2U);
  copy_all();
  backend->poll();
  EXPECT_EQ(heard_.times, (std::map<std::uint64_t, int>{{1, 1}, {2, 1}, {3, 1}}));
  EXPECT_EQ(from_, to_);
}

// It sleeps by the backend's clock, so a minute takes no real time here.
TEST_F(OpenDsaTest, WaitsForWhatIsInFlightByItsOwnClock) {
  const Nanoseconds limit = std::chrono::minutes{1};
  for (const bool answers : {true, false}) {
    auto backend = open({dsa::test::held_queue()}, limit).value();
    EXPECT_EQ(backend->submit({{piece(0, 100, answers ? 1 : 2)}}, heard_).value_or(0), 1U);
    const Nanoseconds begin = clock_.now();
    std::size_t naps = 0;
    waiting_.asleep = [&] {
      if (++naps == 5 && answers) copy_all();
    };
    backend.reset();
    EXPECT_EQ(answers, naps == 5) << naps;
    EXPECT_EQ(answers, clock_.now() - begin < limit);
    EXPECT_LE(clock_.now() - begin, 3 * limit);
    held_.taken.clear();
  }
  EXPECT_EQ(heard_.times, (std::map<std::uint64_t, int>{{1, 1}, {2, 1}}));
  EXPECT_EQ(heard_.errors, (std::map<std::uint64_t, ErrorCode>{{2, ErrorCode::timed_out}}));
}

TEST_F(OpenDsaTest, ALostPieceIsReportedForAnotherEngine) {
  const auto backend = open({dsa::test::held_queue()}).value();
  EXPECT_EQ(backend->submit({{piece(0, 100, 1)}}, heard_).value_or(0), 1U);
  EXPECT_EQ(backend->poll(), 0U);
  clock_.advance(std::chrono::milliseconds{2});
  EXPECT_EQ(backend->poll(), 1U);
  EXPECT_EQ(heard_.errors[1], ErrorCode::timed_out);
  const auto refused = backend->submit({{piece(0, 100, 2)}}, heard_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(heard_.times.count(2), 0U);
}

TEST_F(OpenDsaTest, TheHintIsKeptWhereTheDeviceHasIt) {
  for (const bool control : {false, true}) {
    HeldDevice held;
    const dsa::Device device{
        .name = "dsa0", .cache_control = control, .queues = {dsa::test::held_queue()}};
    const auto backend = open_dsa(machine_, {kFirst},
                                  {.devices = std::vector{device},
                                   .open = held.opener(),
                                   .limit = std::chrono::milliseconds{1}})
                             .value();
    Piece kept = piece(0, 100, 1);
    kept.hint = CopyHint::keep;
    ASSERT_TRUE(backend->submit({{kept}}, heard_));
    EXPECT_EQ(held.taken.at(0).has(dsa::flag::to_cache), control);
  }
}

TEST_F(OpenDsaTest, WhatCannotBeOpenedIsOneClearLine) {
  const auto error = [&](std::vector<EngineId> engines, std::vector<dsa::Device> devices) {
    const auto backend = open_dsa(machine_, std::move(engines),
                                  {.devices = std::move(devices), .open = held_.opener()});
    EXPECT_FALSE(backend);
    if (backend) return Error{};
    EXPECT_EQ(backend.error().message.find('\n'), std::string::npos);
    return backend.error();
  };
  EXPECT_EQ(error({}, {}).code, ErrorCode::invalid);
  EXPECT_EQ(error({EngineId{77}}, {}).code, ErrorCode::unsupported);
  EXPECT_EQ(error({kCore}, {}).code, ErrorCode::unsupported);
  EXPECT_EQ(error({kFirst}, {}).message, "no device dsa0 here; see headrace doctor");
  EXPECT_EQ(error({kFirst}, {{.name = "dsa0", .unusable = "dsa0 is disabled"}}).message,
            "dsa0: dsa0 is disabled; see headrace doctor");
  auto off = dsa::test::held_queue();
  off.unusable = "it is disabled";
  EXPECT_EQ(error({kFirst}, {{.name = "dsa0", .queues = {off, off}}}).message,
            "wq0.0: it is disabled; see headrace doctor");
  held_.closed = Error{ErrorCode::denied, "not ours"};
  EXPECT_EQ(error({kFirst}, {{.name = "dsa0", .queues = {dsa::test::held_queue()}}}).code,
            ErrorCode::denied);
}

// One of the devices is enough; the note has the state of the other one.
TEST_F(OpenDsaTest, OneDeviceIsEnough) {
  const dsa::Device device{.name = "dsa1", .queues = {dsa::test::held_queue("wq1.0")}};
  const auto backend = open_dsa(machine_, {kFirst, kSecond},
                                {.devices = std::vector{device}, .open = held_.opener()});
  ASSERT_TRUE(backend);
  EXPECT_EQ((*backend)->capabilities().engines, std::vector{kSecond});
  EXPECT_EQ((*backend)->capabilities().note,
            "dsa0: no device dsa0 here; see headrace doctor; dsa1: shared wq1.0 by held");
}

}  // namespace
}  // namespace headrace
