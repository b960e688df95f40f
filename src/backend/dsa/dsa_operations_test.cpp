// SPDX-License-Identifier: Apache-2.0
#include "headrace/dsa_operations.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <string>
#include <thread>

#include "dsa_emulator/dsa_emulator.h"
#include "headrace/random.h"

namespace headrace {
namespace {

using Page = std::vector<std::byte>;
using ConstSpan = std::span<const std::byte>;

// A client with an emulated device, or without any.
struct Opened {
  std::unique_ptr<emulator::DeviceSet> devices;
  DsaClient client;  // first to go
};

Opened opened(bool with_device, emulator::DeviceFaults faults = {}) {
  Opened made;
  if (!with_device) return made;
  emulator::DeviceOptions device;
  device.faults = std::move(faults);
  made.devices = emulator::DeviceSet::start({std::move(device)}).value();
  made.client = DsaClient(
      dsa::Client::open(made.devices->devices().front(),
                        {.open = made.devices->opener(), .limit = std::chrono::milliseconds{100}})
          .value());
  return made;
}

Page random_page(std::uint64_t seed, std::size_t bytes = 4096) {
  Random random(seed);
  Page page(bytes);
  for (std::byte& byte : page) byte = static_cast<std::byte>(random());
  return page;
}

std::uint32_t plain_crc(ConstSpan bytes, std::uint32_t seed = 0) {
  std::uint32_t state = ~seed;
  for (const std::byte byte : bytes) {
    state ^= std::to_integer<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) state = (state >> 1) ^ ((state & 1) != 0 ? 0x82f63b78 : 0);
  }
  return ~state;
}

// Each of these with a device and without.
class Operations : public testing::TestWithParam<bool> {
 protected:
  Opened opened_ = opened(GetParam());
  DsaClient& client_ = opened_.client;
};

TEST_P(Operations, CopyToOneAndToTwo) {
  const Page from = random_page(1);
  Page to(4096);
  Page and_to(4096);
  ASSERT_TRUE(client_.run({dsa::Copy{.to = to, .from = from}}));
  EXPECT_EQ(from, to);
  std::ranges::fill(to, std::byte{0});
  ASSERT_TRUE(client_.run({dsa::Dualcast{.to = to, .and_to = and_to, .from = from}}));
  EXPECT_EQ(from, to);
  EXPECT_EQ(from, and_to);
}

TEST_P(Operations, ACopyMayOverlapItself) {
  Page page = random_page(2);
  Page wanted = page;
  std::copy_backward(wanted.begin(), wanted.end() - 100, wanted.end());
  const std::span all(page);
  ASSERT_TRUE(client_.run({dsa::Copy{.to = all.subspan(100), .from = all.first(3996)}}));
  EXPECT_EQ(page, wanted);
}

TEST_P(Operations, FillWithEightBytesAndWithSixteen) {
  Page page(20);
  ASSERT_TRUE(client_.run({dsa::Fill{.to = page, .pattern = 0x0807060504030201}}));
  for (std::size_t i = 0; i < page.size(); ++i) EXPECT_EQ(page[i], std::byte(i % 8 + 1));
  ASSERT_TRUE(client_.run({dsa::Fill{.to = page, .pattern = 1, .and_pattern = 2}}));
  EXPECT_EQ(page[0], std::byte{1});
  EXPECT_EQ(page[8], std::byte{2});
  EXPECT_EQ(page[16], std::byte{1});
}

TEST_P(Operations, CompareSaysWhereTheFirstDifferenceIs) {
  const Page page = random_page(3);
  Page other = page;
  EXPECT_EQ(client_.run({dsa::Compare{page, other}})->difference, std::nullopt);
  other[3001] ^= std::byte{1};
  other[4000] ^= std::byte{1};
  EXPECT_EQ(client_.run({dsa::Compare{page, other}})->difference, 3001U);

  // Within a pattern a device may name the word that differs, and later words of the program may
  // change it.
  Page filled(4096, std::byte{7});
  filled[1234] = std::byte{8};
  const std::uint64_t sevens = 0x0707070707070707;
  const std::vector<DsaOperation> program = {
      {.what = dsa::ComparePattern{filled, sevens}},
      {.what = dsa::Fill{filled, sevens}, .fenced = true},
      {.what = dsa::ComparePattern{filled, sevens}, .fenced = true}};
  const auto found = client_.run(program);
  EXPECT_EQ(found[0]->difference, 1234U);
  EXPECT_EQ(found[2]->difference, std::nullopt);
}

TEST_P(Operations, ChecksumsAreTheUsualOnesAndGoOn) {
  const std::string_view digits = "123456789";
  const ConstSpan bytes = std::as_bytes(std::span(digits));
  EXPECT_EQ(client_.run({dsa::Crc32c{bytes}})->crc, 0xe3069283);
  Page to(9);
  EXPECT_EQ(client_.run({dsa::CopyCrc32c{.to = to, .from = bytes}})->crc, 0xe3069283);
  EXPECT_TRUE(std::ranges::equal(to, bytes));
  const auto front = client_.run({dsa::Crc32c{bytes.first(4)}})->crc;
  EXPECT_EQ(client_.run({dsa::Crc32c{bytes.subspan(4), *front}})->crc, 0xe3069283);
}

TEST_P(Operations, ADeltaMakesTheNewPageOfTheOld) {
  Page old = random_page(4);
  Page changed = old;
  for (const std::size_t at : {0, 100, 107, 4095}) changed[at] ^= std::byte{0x55};
  Page record(800);
  const auto delta = client_.run({dsa::CreateDelta{old, changed, record}})->delta;
  ASSERT_TRUE(delta);
  EXPECT_EQ(delta->data(), record.data());
  EXPECT_EQ(delta->size(), 40U);  // the words 0, 12, 13 and 511
  ASSERT_TRUE(client_.run({dsa::ApplyDelta{.to = old, .record = *delta}}));
  EXPECT_EQ(old, changed);
  EXPECT_TRUE(client_.run({dsa::CreateDelta{old, changed, record}})->delta->empty());
}

TEST_P(Operations, ADeltaThatDoesNotFitIsNone) {
  const Page old(4096);
  const Page changed = random_page(5);
  for (const std::size_t room : {8, 80, 5000}) {
    Page record(room);
    const auto found = client_.run({dsa::CreateDelta{old, changed, record}});
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_FALSE(found->delta);
  }
}

TEST_P(Operations, FlushChangesNothing) {
  const Page page = random_page(6);
  ASSERT_TRUE(client_.run({dsa::Flush{page}}));
  EXPECT_EQ(page, random_page(6));
}

TEST_P(Operations, OfNothingAllIsWell) {
  const std::vector<DsaOperation> program = {
      {dsa::Copy{}},       {dsa::Dualcast{}},       {dsa::Fill{}},       {dsa::Compare{}},
      {dsa::Crc32c{}},     {dsa::ComparePattern{}}, {dsa::CopyCrc32c{}}, {dsa::CreateDelta{}},
      {dsa::ApplyDelta{}}, {dsa::Flush{}}};
  for (const auto& result : client_.run(program)) EXPECT_TRUE(result) << result.error().message;
  EXPECT_EQ(client_.run({dsa::Crc32c{.bytes = {}, .seed = 5}})->crc, 5U);
  EXPECT_TRUE(client_.run(std::span<const DsaOperation>{}).empty());
}

// Nothing of a program is run if one of it makes no sense.
TEST_P(Operations, WhatMakesNoSenseIsInvalid) {
  Page page(4096);
  Page record(4096);
  const std::span all(page);
  Page huge(520 << 10);
  const std::vector<DsaOperation> wrong = {
      {dsa::Copy{all.first(10), all.first(11)}},
      {dsa::Dualcast{all.first(8), all.subspan(8, 8), all.subspan(16, 9)}},
      {dsa::Dualcast{all.first(8), all.subspan(4, 8), all.subspan(16, 8)}},
      {dsa::Dualcast{all.first(8), all.subspan(8, 8), all.subspan(15, 8)}},
      {dsa::Compare{all.first(10), all.first(11)}},
      {dsa::CopyCrc32c{all.first(10), all.subspan(20, 11)}},
      {dsa::CopyCrc32c{all.first(10), all.subspan(9, 10)}},
      {dsa::CreateDelta{all.first(64), all.subspan(64, 72), record}},
      {dsa::CreateDelta{all.first(60), all.subspan(64, 60), record}},
      {dsa::CreateDelta{all.subspan(1, 64), all.subspan(128, 64), record}},
      {dsa::CreateDelta{all.first(64), all.subspan(64, 64), all.subspan(120, 80)}},
      {dsa::CreateDelta{huge, huge, record}},
      {dsa::ApplyDelta{all.first(64), std::span(record).first(15)}},
      {dsa::ApplyDelta{all.first(64), all.subspan(56, 10)}},
  };
  for (std::size_t i = 0; i < wrong.size(); ++i) {
    const std::vector<DsaOperation> program = {
        {dsa::Fill{all, 1}}, wrong[i], {.what = dsa::Flush{all}, .fenced = true}};
    const auto results = client_.run(program);
    ASSERT_FALSE(results[1]) << i;
    EXPECT_EQ(results[1].error().code, ErrorCode::invalid) << results[1].error().message;
    EXPECT_EQ(results[0].error().code, ErrorCode::cancelled);
    EXPECT_EQ(results[2].error().code, ErrorCode::cancelled);
  }
  EXPECT_EQ(page, Page(4096));
  EXPECT_EQ(client_.stats().by_device + client_.stats().by_cpu, 0U);
}

TEST_P(Operations, MemoryThatIsNotOursIsAnErrorAndEndsAtTheFence) {
  void* const hole = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(hole, MAP_FAILED);
  Page page(4096);
  const std::vector<DsaOperation> program = {{dsa::Crc32c{{static_cast<std::byte*>(hole), 4096}}},
                                             {dsa::Fill{page, 1}},
                                             {.what = dsa::Fill{page, 2}, .fenced = true},
                                             {dsa::Crc32c{page}}};
  const auto results = client_.run(program);
  EXPECT_EQ(results[0].error().code, ErrorCode::invalid);
  EXPECT_TRUE(results[1]);
  EXPECT_EQ(results[2].error().code, ErrorCode::cancelled);
  EXPECT_EQ(results[3].error().code, ErrorCode::cancelled);
  EXPECT_EQ(page[0], std::byte{1});
  munmap(hole, 4096);
}

TEST_P(Operations, ARecordOfALargerPageIsInvalid) {
  Page page(64);
  Page record(10);
  record[0] = std::byte{8};  // words 0 to 7 are there
  const auto refused = client_.run({dsa::ApplyDelta{page, record}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::invalid);
}

TEST_P(Operations, AClientCanBeMoved) {
  const Page page = random_page(7);
  DsaClient moved = std::move(client_);
  EXPECT_EQ(moved.run({.what = dsa::Crc32c{page}, .hint = CopyHint::keep})->crc, plain_crc(page));
  client_ = std::move(moved);
  EXPECT_EQ(client_.run({dsa::Crc32c{page}})->crc, plain_crc(page));
  EXPECT_EQ(client_.stats().by_device, GetParam() ? 2U : 0U);
  EXPECT_EQ(client_.stats().unable, GetParam() ? 0U : 2U);
}

INSTANTIATE_TEST_SUITE_P(DsaClient, Operations, testing::Bool(), [](const auto& with) {
  return with.param ? std::string("WithADevice") : std::string("WithoutOne");
});

TEST(DsaClient, ADeviceThatIsNotThereIsAbsent) {
  setenv("HEADRACE_DSA_SYSFS", "/nowhere", 1);
  auto refused = DsaClient::open("dsa0");
  unsetenv("HEADRACE_DSA_SYSFS");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::absent);
  DsaClient client = std::move(refused).value_or(DsaClient());
  const Page page = random_page(8);
  EXPECT_EQ(client.run({dsa::Crc32c{page}})->crc, plain_crc(page));
}

// Random programs against plain loops. The arena is cut into slots, and an operation has one for
// each of its ranges, so that it never overlaps itself and what depends on what is easily told.
constexpr std::size_t kSlot = 3 * 4096;
constexpr std::size_t kSlots = 12;

// What `operation` on bytes of `real` does, done on `arena`.
class Plain {
 public:
  Plain(const Page& real, Page& arena) : real_(real), arena_(arena) {}

  DsaOutcome run(const DsaOperation& operation) {
    outcome_ = {};
    std::visit(*this, operation.what);
    return outcome_;
  }

  void operator()(const dsa::Copy& what) { copy(what.to, what.from); }
  void operator()(const dsa::Dualcast& what) {
    copy(what.to, what.from);
    copy(what.and_to, what.from);
  }
  void operator()(const dsa::Fill& what) {
    for (std::size_t i = 0; i < what.to.size(); ++i) {
      const bool second = what.and_pattern && i % 16 >= 8;
      at(what.to)[i] = byte_of(second ? *what.and_pattern : what.pattern, i);
    }
  }
  void operator()(const dsa::Compare& what) {
    for (std::size_t i = what.bytes.size(); i-- > 0;) {
      if (at(what.bytes)[i] != at(what.with)[i]) outcome_.difference = i;
    }
  }
  void operator()(const dsa::ComparePattern& what) {
    for (std::size_t i = what.bytes.size(); i-- > 0;) {
      if (at(what.bytes)[i] != byte_of(what.pattern, i)) outcome_.difference = i;
    }
  }
  void operator()(const dsa::Crc32c& what) {
    outcome_.crc = plain_crc({at(what.bytes), what.bytes.size()}, what.seed);
  }
  void operator()(const dsa::CopyCrc32c& what) {
    copy(what.to, what.from);
    (*this)(dsa::Crc32c{what.from, what.seed});
  }
  void operator()(const dsa::CreateDelta& what) {
    std::size_t used = 0;
    for (std::size_t word = 0; word < what.old.size() / 8; ++word) {
      const std::byte* const now = at(what.changed) + word * 8;
      if (std::equal(now, now + 8, at(what.old) + word * 8)) continue;
      if (used + 10 > what.record.size()) return;
      at(what.record)[used] = static_cast<std::byte>(word);
      at(what.record)[used + 1] = static_cast<std::byte>(word >> 8);
      std::copy(now, now + 8, at(what.record) + used + 2);
      used += 10;
    }
    outcome_.delta = what.record.first(used);
  }
  void operator()(const dsa::ApplyDelta& what) {
    const std::byte* const record = at(what.record);
    for (std::size_t i = 0; i < what.record.size(); i += 10) {
      const auto word = std::to_integer<std::size_t>(record[i]) +
                        256 * std::to_integer<std::size_t>(record[i + 1]);
      std::copy(record + i + 2, record + i + 10, at(what.to) + word * 8);
    }
  }
  void operator()(const dsa::Flush&) {}

 private:
  static std::byte byte_of(std::uint64_t pattern, std::size_t i) {
    return static_cast<std::byte>(pattern >> (i % 8 * 8));
  }
  std::byte* at(ConstSpan bytes) { return arena_.data() + (bytes.data() - real_.data()); }
  void copy(ConstSpan to, ConstSpan from) { std::copy(at(from), at(from) + from.size(), at(to)); }

  const Page& real_;
  Page& arena_;
  DsaOutcome outcome_;
};

class RandomOperations {
 public:
  RandomOperations(std::uint64_t seed, Page& arena, Page& wanted)
      : random_(seed), arena_(arena), wanted_(wanted) {}

  std::vector<DsaOperation> program() {
    std::vector<DsaOperation> made;
    for (std::size_t left = 1 + random_.below(16); left > 0; --left) {
      begin();
      DsaOperation operation{.what = what(made.empty())};
      if (random_.below(4) == 0) operation.hint = CopyHint::keep;
      // Nothing is written that another of its stage touches.
      const auto clash = [&](std::size_t slot, bool writes) {
        return written_[slot] || (writes && read_[slot]);
      };
      bool fenced = random_.below(10) == 0;
      for (std::size_t i = 0; i < used_; ++i) fenced = fenced || clash(slots_[i], i < writes_);
      if (fenced) written_ = read_ = {};
      for (std::size_t i = 0; i < used_; ++i) (i < writes_ ? written_ : read_)[slots_[i]] = true;
      operation.fenced = fenced;
      made.push_back(operation);
    }
    return made;
  }

 private:
  void begin() {
    std::iota(slots_.begin(), slots_.end(), 0);
    for (std::size_t i = 0; i < 3; ++i) std::swap(slots_[i], slots_[i + random_.below(kSlots - i)]);
    used_ = writes_ = 0;
    bytes_ = random_.below(random_.below(4) == 0 ? kSlot : 300);
  }

  // A range to write, then those to read, each in a slot of its own.
  std::span<std::byte> take(std::size_t bytes, std::size_t step) {
    const std::size_t at = random_.below((kSlot - bytes) / step + 1) * step;
    return std::span(arena_).subspan(slots_[used_++] * kSlot + at, bytes);
  }
  std::span<std::byte> write(std::size_t step = 1) {
    ++writes_;
    return take(bytes_, step);
  }
  std::span<const std::byte> read(std::size_t step = 1) { return take(bytes_, step); }

  decltype(DsaOperation::what) what(bool first) {
    const auto seed = static_cast<std::uint32_t>(random_());
    switch (random_.below(10)) {
      case 0: return dsa::Copy{.to = write(), .from = read()};
      case 1: return dualcast();
      case 2: return dsa::Fill{.to = write(), .pattern = random_()};
      case 3: return dsa::Fill{.to = write(), .pattern = random_(), .and_pattern = random_()};
      case 4: return dsa::Compare{.bytes = read(), .with = read()};
      case 5: return dsa::ComparePattern{.bytes = read(), .pattern = 0};
      case 6: return dsa::Crc32c{.bytes = read(), .seed = seed};
      case 7: return dsa::CopyCrc32c{.to = write(), .from = read(), .seed = seed};
      case 8: return first ? apply_delta() : decltype(DsaOperation::what)(dsa::Flush{read()});
      default: return create_delta();
    }
  }

  // At the same place in their pages, or a device does it not.
  dsa::Dualcast dualcast() {
    const auto to = write();
    ++writes_;
    const std::size_t at = static_cast<std::size_t>(to.data() - arena_.data()) % kSlot;
    const auto and_to = std::span(arena_).subspan(slots_[used_++] * kSlot + at, bytes_);
    return {.to = to, .and_to = and_to, .from = read()};
  }

  dsa::CreateDelta create_delta() {
    bytes_ = bytes_ / 8 * 8;
    ++writes_;
    const auto record = take(80 + random_.below(1000), 8);
    return {.old = read(8), .changed = read(8), .record = record};
  }

  // Its record, of some words in ascending order, is put into both.
  dsa::ApplyDelta apply_delta() {
    bytes_ = bytes_ / 8 * 8;
    const auto to = write(8);
    std::vector<std::byte> record;
    for (std::size_t word = 0; word < bytes_ / 8; ++word) {
      if (random_.below(4) != 0) continue;
      record.push_back(static_cast<std::byte>(word));
      record.push_back(static_cast<std::byte>(word >> 8));
      for (int i = 0; i < 8; ++i) record.push_back(static_cast<std::byte>(random_()));
    }
    const auto place = take(record.size(), 8);
    std::ranges::copy(record, place.begin());
    std::ranges::copy(record, wanted_.begin() + (place.data() - arena_.data()));
    return {.to = to, .record = place};
  }

  Random random_;
  Page& arena_;
  Page& wanted_;
  std::array<std::size_t, kSlots> slots_{};  // those of the operation in front, `used_` of them
  std::size_t used_ = 0;
  std::size_t writes_ = 0;  // the first of them
  std::size_t bytes_ = 0;
  std::array<bool, kSlots> written_{};  // by the stage so far
  std::array<bool, kSlots> read_{};
};

bool same(const DsaOutcome& a, const DsaOutcome& b) {
  const auto bytes = [](const DsaOutcome& of) {
    return of.delta ? std::optional(of.delta->size()) : std::nullopt;
  };
  return a.difference == b.difference && a.crc == b.crc && bytes(a) == bytes(b);
}

void run_random_programs(DsaClient& client, std::uint64_t seed, std::size_t programs) {
  Page arena(kSlot * kSlots);
  Random random(seed);
  // Many equal bytes, so that comparisons find some.
  for (std::byte& byte : arena) byte = static_cast<std::byte>(random.below(50) == 0 ? random() : 0);
  Page wanted = arena;
  RandomOperations operations(seed, arena, wanted);
  Plain plain(arena, wanted);
  for (std::size_t i = 0; i < programs; ++i) {
    const auto program = operations.program();
    const auto results = client.run(program);
    for (std::size_t at = 0; at < program.size(); ++at) {
      const DsaOutcome should = plain.run(program[at]);
      ASSERT_TRUE(results[at]) << results[at].error().message;
      ASSERT_TRUE(same(*results[at], should)) << "operation of kind " << program[at].what.index();
    }
    ASSERT_TRUE(arena == wanted) << "byte "
                                 << std::ranges::mismatch(arena, wanted).in1 - arena.begin()
                                 << ", program " << i;
  }
}

constexpr std::size_t kPrograms = 300;
const emulator::DeviceFaults kFailing{.page_fault_chance = 0.1,
                                      .hardware_chance = 0.01,
                                      .unknown_status_chance = 0.01,
                                      .lost_record_chance = 0.001};

TEST(DsaClientRandom, ProgramsOnADeviceGiveWhatPlainLoopsGive) {
  Opened made = opened(true, kFailing);
  run_random_programs(made.client, 1, kPrograms);
  EXPECT_GT(made.client.stats().by_device, kPrograms);
  EXPECT_GT(made.client.stats().given_back, 0U);
}

TEST(DsaClientRandom, ProgramsWithoutADeviceToo) {
  DsaClient client;
  run_random_programs(client, 1, kPrograms);
  EXPECT_EQ(client.stats().by_device, 0U);
}

TEST(DsaClientRandom, SoDoThoseOfSeveralThreads) {
  for (const bool with_device : {true, false}) {
    Opened made = opened(with_device, kFailing);
    std::vector<std::jthread> threads;
    for (std::uint64_t seed = 2; seed < 5; ++seed) {
      threads.emplace_back([&, seed] { run_random_programs(made.client, seed, kPrograms / 3); });
    }
  }
}

}  // namespace
}  // namespace headrace
