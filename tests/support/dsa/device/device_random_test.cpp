// SPDX-License-Identifier: Apache-2.0
// Random programs of descriptors against plain loops on a copy of the memory: all operations, page
// faults of both kinds, fences, overlaps, batches, resumed as SPEC 3.6 and 8.3 say until they are
// done.
//
// HEADRACE_DSA_DESCRIPTORS says how many descriptors, HEADRACE_DSA_SEED where the seeds of programs
// begin (1): a failing program prints its own.
#include <algorithm>
#include <bit>
#include <cstdlib>

#include "tests/support/dsa/device/random_program_testing.h"

namespace headrace::emulator {
namespace {

using namespace test;

// A client that submits errands and resumes them until they are over.
class Driver {
 public:
  Driver(Random& random, Device& device)
      : random_(random), device_(device), setup_(device.setup()) {
    space_.add(pages_.all());
    space_.add(lists_.all());
    space_.add(records_.all());
  }

  Pages& pages() { return pages_; }

  // Hides pages, so that a device meets faults.
  void hide() {
    for (std::size_t page = 0; page < kArena; ++page) {
      if (!random_.chance(0.15)) continue;
      space_.hide(pages_.at(page * kPage, 1), random_.chance(0.5) ? Touch::read : Touch::write);
    }
    if (random_.chance(0.2)) space_.hide(lists_.at(random_.below(2) * kPage, 1));
    // Without page requests a record on a missing page would never come.
    if (setup_.queues[0].block_on_fault && random_.chance(0.2)) space_.hide(records_.all());
  }

  // All at once, in any order.
  void volley(std::span<Errand> errands) {
    for (std::size_t i = 0; i < errands.size(); ++i) submit(errands[i].rest, i);
    device_.run();
    for (std::size_t i = 0; i < errands.size(); ++i) {
      take(errands[i], record(i));
      finish(errands[i], i);
    }
  }

  // As batches, until all are over.
  void batch(std::span<Errand> errands) {
    std::size_t from = 0;
    for (unsigned rounds = 0; from < errands.size(); ++rounds) {
      ASSERT_LT(rounds, 1000U);
      const std::size_t left = errands.size() - from;
      if (left == 1 && !setup_.gen_cap.batch_of_one()) {
        errands[from].rest.command &= ~flag::fence;
        finish(errands[from], from);
        return;
      }
      from += part(errands.subspan(from));
    }
  }

 private:
  Record& record(std::size_t index) {
    return *reinterpret_cast<Record*>(&records_[32 * (index + 1)]);
  }
  Record& own_record() { return *reinterpret_cast<Record*>(&records_[0]); }

  void hand_over(const Descriptor& of) {
    if (setup_.queues[0].shared) {
      ASSERT_TRUE(device_.enqcmd(0, space_, of));
    } else {
      device_.movdir64b(0, space_, of);
    }
  }
  void submit(Descriptor& of, std::size_t index) {
    record(index) = {};
    of.record = DirectMemory::number(&record(index));
    hand_over(of);
  }

  // One batch of them. How many of them are over then.
  std::size_t part(std::span<Errand> errands) {
    std::vector<Descriptor> list;
    for (std::size_t i = 0; i < errands.size(); ++i) {
      record(i) = {};
      errands[i].rest.record = DirectMemory::number(&record(i));
      list.push_back(errands[i].rest);
    }
    // A list may lie across pages.
    const std::size_t offset = kPage - 64 * random_.below(list.size() + 1);
    std::memcpy(&lists_[offset], list.data(), 64 * list.size());
    Descriptor of = make_batch(list, own_record());
    own_record() = {};
    of.source = lists_.address(offset);
    hand_over(of);
    device_.run();
    return settle(errands, own_record());
  }

  // SPEC 8.3.2: by the batch's record those before `completed` were processed.
  std::size_t settle(std::span<Errand> errands, const Record& of) {
    if (of.code() == Code::hardware) return 0;
    const std::size_t done = of.completed;
    EXPECT_LE(done, errands.size());
    bool failed = false;
    for (std::size_t i = 0; i < errands.size(); ++i) {
      EXPECT_EQ(record(i).status != 0, i < done) << i << " of " << errands.size();
      if (i < done) failed = failed || record(i).status != 1;
    }
    if (of.code() == Code::batch_list_fault) {
      EXPECT_EQ(of.result, failed ? 1 : 0);
      EXPECT_TRUE(space_.resolve(of.fault_address, Touch::read));
    } else {
      EXPECT_EQ(of.code(), failed ? Code::batch_failed : Code::success);
      EXPECT_TRUE(failed || done == errands.size());
      EXPECT_TRUE(done == errands.size() || errands[done].rest.has(flag::fence));
    }
    for (std::size_t i = 0; i < done; ++i) take(errands[i], record(i));
    for (std::size_t i = 0; i < done; ++i) {
      errands[i].rest.command &= ~flag::fence;
      finish(errands[i], i);
    }
    return done;
  }

  // Submits what is left of one until nothing is.
  void finish(Errand& errand, std::size_t index) {
    while (!errand.over) {
      ASSERT_LT(++errand.rounds, 1000U);
      submit(errand.rest, index);
      device_.run();
      take(errand, record(index));
    }
  }

  void take(Errand& errand, const Record& of) {
    if (of.code() == Code::hardware) return;  // of this device: nothing was done
    if (errand.invalid) {
      EXPECT_EQ(of.code(), Code::reserved_field);
      errand.over = true;
    } else if (of.code() == Code::page_fault || of.code() == Code::page_request_refused) {
      resume(errand, of);
    } else if (of.code() == Code::success) {
      conclude(errand, of);
    } else if (of.code() == Code::bad_alignment || of.code() == Code::bad_value) {
      by_hand(errand);  // a rest that the device does not take
    } else {
      ADD_FAILURE() << to_string(errand.rest.opcode()) << ": " << to_string(of.code());
      errand.over = true;
    }
  }

  // Touches the page as a CPU would, then continues by the table in SPEC 3.6.
  void resume(Errand& errand, const Record& of) {
    EXPECT_TRUE(space_.resolve(of.fault_address, of.write_fault() ? Touch::write : Touch::read));
    Descriptor& rest = errand.rest;
    const std::uint32_t n = of.completed;
    switch (rest.opcode()) {
      case Opcode::fill: {
        std::array<std::uint64_t, 2> words = {rest.source, rest.extra[0]};
        if (!rest.has(flag::pattern16)) words[1] = words[0];
        auto* pattern = reinterpret_cast<std::uint8_t*>(words.data());
        std::rotate(pattern, pattern + n % 16, pattern + 16);
        rest.source = words[0];
        if (rest.has(flag::pattern16)) rest.extra[0] = words[1];
        rest.destination += n;
        break;
      }
      case Opcode::memmove:
        if (of.result == 1) break;
        rest.source += n;
        rest.destination += n;
        break;
      case Opcode::compare_pattern:
        rest.destination = std::rotr(rest.destination, static_cast<int>(8 * (n % 8)));
        rest.source += n;
        break;
      case Opcode::apply_delta:
        rest.source += n;
        rest.extra[0] -= n;
        return;
      case Opcode::cache_flush: rest.destination += n; break;
      case Opcode::crc:
      case Opcode::translation_fetch: rest.source += n; break;
      default: rest.source += n; rest.destination += n;
    }
    rest.size -= n;
    if (rest.opcode() == Opcode::dualcast) rest.extra[0] += n;
    if (rest.opcode() == Opcode::crc || rest.opcode() == Opcode::copy_crc) {
      rest.extra[0] = of.extra[0];
    }
    if (rest.opcode() == Opcode::create_delta) advance_delta(errand, of.extra[0]);
    errand.before += n;
  }

  // The numbers of words in a part count from its beginning.
  void fix_deltas(const Errand& errand, std::uint64_t bytes) {
    for (std::uint64_t i = 0; i < bytes; i += 10) {
      std::byte* at = &pages_[errand.rest.extra[0] + i - pages_.address()];
      std::uint16_t number = 0;
      std::memcpy(&number, at, 2);
      number = static_cast<std::uint16_t>(number + errand.before / 8);
      std::memcpy(at, &number, 2);
    }
  }
  void advance_delta(Errand& errand, std::uint64_t bytes) {
    fix_deltas(errand, bytes);
    errand.rest.extra[0] += bytes;
    errand.rest.extra[1] -= bytes;
    errand.written += bytes;
  }

  void conclude(Errand& errand, const Record& of) {
    Answer& answer = errand.answer;
    errand.over = true;
    answer.result = of.result;
    switch (errand.rest.opcode()) {
      case Opcode::compare:
      case Opcode::compare_pattern:
        answer.place = of.result == 1 ? errand.before + of.completed : 0;
        break;
      case Opcode::create_delta:
        fix_deltas(errand, of.extra[0]);
        answer.value = errand.written + of.extra[0];
        answer.place = of.result == 2 ? errand.before + of.completed : 0;
        if (answer.result == 0 && errand.written > 0) answer.result = 1;
        break;
      case Opcode::crc:
      case Opcode::copy_crc: answer.value = of.extra[0]; break;
      default: EXPECT_EQ(of.completed, 0U);
    }
  }

  // Like a client without a way to submit it: on the CPU.
  void by_hand(Errand& errand) {
    const bool delta =
        errand.rest.opcode() == Opcode::create_delta || errand.rest.opcode() == Opcode::apply_delta;
    EXPECT_TRUE(delta && errand.rest != errand.first) << "a first part is well";
    Loops loops(pages_);
    const Answer answer = loops.run(errand.rest);
    std::ranges::copy(loops.bytes(), pages_.all().begin());
    Record of{.status = 1, .result = answer.result};
    of.completed = static_cast<std::uint32_t>(answer.place);
    if (errand.rest.opcode() == Opcode::create_delta) of.extra[0] = answer.value;
    conclude(errand, of);
  }

  Random& random_;
  Device& device_;
  const DeviceSetup& setup_;
  DirectMemory space_;
  Pages pages_{kArena};
  Pages lists_{2};
  Pages records_{1};
};

DeviceOptions any_device(Random& random) {
  DeviceSetup setup = random.chance(0.4) ? sapphire_rapids() : random.chance(0.5) ? dsa2() : dsa3();
  setup.groups[0].engines = static_cast<unsigned>(1 + random.below(4));
  setup.queues[0].shared = random.chance(0.7);
  setup.queues[0].block_on_fault = random.chance(0.6);
  setup.delta_records_aligned = random.chance(0.3);
  return {.setup = setup,
          .seed = random(),
          .faults = {.page_fault_chance = random.chance(0.5) ? 0.2 : 0,
                     .hardware_chance = random.chance(0.3) ? 0.05 : 0}};
}

void expect_same(const Errand& errand, const Answer& expected) {
  const Opcode opcode = errand.first.opcode();
  Answer answer = errand.answer;
  // A memmove's direction, and a place that is "no greater than" the difference's.
  if (opcode == Opcode::compare_pattern) {
    EXPECT_LE(answer.place, expected.place);
    EXPECT_LT(expected.place - answer.place, 8U);
    answer.place = expected.place;
  }
  EXPECT_EQ(answer.result, expected.result) << to_string(opcode);
  EXPECT_EQ(answer.place, expected.place) << to_string(opcode);
  EXPECT_EQ(answer.value, expected.value) << to_string(opcode);
}

// Counts over all programs.
struct Tally {
  std::uint64_t executed = 0;  // resubmissions included
  std::uint64_t batches = 0;
  std::uint64_t faults = 0;
  std::uint64_t resolved = 0;
};

void run_program(std::uint64_t seed, Tally& tally) {
  Random random(seed);
  const auto device = open_device(any_device(random));
  Driver driver(random, *device);
  for (std::size_t i = 0; i < kArena * kPage; i += 8) {
    const std::uint64_t bits = random();
    std::memcpy(&driver.pages()[i], &bits, sizeof(bits));
  }
  Loops loops(driver.pages());
  Maker maker(random, driver.pages(), device->setup());
  for (int i = 0; i < 8 && !testing::Test::HasFailure(); ++i) {
    const bool batch = random.chance(0.5);
    const std::size_t count = batch ? 2 + random.below(kMostAtOnce - 1) : 1 + random.below(kLanes);
    std::vector<Errand> errands;
    for (std::size_t n = 0; n < count; ++n) {
      errands.push_back(maker.make(n % kLanes, n, loops));
      // A lane is used again behind a fence only.
      const bool fence = n % kLanes == 0 || random.chance(0.1);
      if (batch && n > 0 && fence) errands.back().rest.command |= flag::fence;
    }
    driver.hide();
    batch ? driver.batch(errands) : driver.volley(errands);
    std::vector<Answer> answers;
    for (const Errand& errand : errands)
      answers.push_back(errand.invalid ? Answer{} : loops.run(errand.first));
    for (std::size_t n = 0; n < count; ++n) {
      expect_same(errands[n], answers[n]);
    }
    EXPECT_EQ(std::memcmp(&driver.pages()[0], loops.bytes().data(), loops.bytes().size()), 0);
  }
  EXPECT_TRUE(device->idle());
  DeviceStats stats = device->stats();
  for (const auto& [opcode, times] : stats.executed) tally.executed += times;
  tally.batches += stats.executed[Opcode::batch];
  tally.faults += stats.faults;
  tally.resolved += stats.resolved;
}

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

// A few seconds; plain loops are what a sanitizer is slow at.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::uint64_t kDescriptors = 10000;
#else
constexpr std::uint64_t kDescriptors = 200000;
#endif

TEST(DevicePrograms, GiveWhatPlainLoopsGive) {
  const std::uint64_t wanted = from_environment("HEADRACE_DSA_DESCRIPTORS", kDescriptors);
  std::uint64_t seed = from_environment("HEADRACE_DSA_SEED", 1);
  Tally tally;
  for (; tally.executed < wanted; ++seed) {
    run_program(seed, tally);
    ASSERT_FALSE(HasFailure()) << "HEADRACE_DSA_SEED=" << seed;
  }
  if (wanted < 1000) return;
  EXPECT_GT(tally.batches, tally.executed / 50);
  EXPECT_GT(tally.faults, tally.executed / 10);
  EXPECT_GT(tally.resolved, tally.executed / 50);
}

}  // namespace
}  // namespace headrace::emulator
