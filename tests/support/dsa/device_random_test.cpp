// SPDX-License-Identifier: Apache-2.0
// Random programs of copies against memmove() on a copy of the memory: overlaps, page faults of
// both kinds, failures, batches; resumed as SPEC 3.6 and 8.3 say until they are done.
//
// HEADRACE_DSA_DESCRIPTORS is the number of descriptors, HEADRACE_DSA_SEED the seed of the first
// program (1): a failing program prints its own.
#include <algorithm>
#include <cstdlib>
#include <vector>

#include "tests/support/dsa/testing.h"

namespace headrace::emulator {
namespace {

using namespace test;

constexpr std::size_t kLanes = 12;
constexpr std::size_t kLane = 4 * kPage;  // each copy of a round works in its own

struct Work {
  Descriptor rest;
  bool over = false;
};

class Program {
 public:
  explicit Program(std::uint64_t seed) : random_(seed) {
    DeviceSetup setup = dsa2();
    setup.engines = static_cast<unsigned>(1 + random_.below(4));
    setup.queues[0].shared = random_.chance(0.7);
    const DeviceFaults faults{.page_fault_chance = random_.chance(0.5) ? 0.2 : 0,
                              .hardware_chance = random_.chance(0.3) ? 0.05 : 0};
    device_ = Device::open({.setup = setup, .seed = random_(), .faults = faults}).value();
    for (std::size_t i = 0; i < pages_.all().size(); i += sizeof(std::uint64_t)) {
      const std::uint64_t bits = random_();
      std::memcpy(&pages_[i], &bits, sizeof(bits));
    }
    wanted_.assign(pages_.all().begin(), pages_.all().end());
  }

  // Makes up to kLanes copies, as single descriptors or as a batch.
  void round() {
    std::vector<Work> works(2 + random_.below(kLanes - 1));
    for (std::size_t i = 0; i < works.size(); ++i) works[i].rest = make_copy(i);
    for (std::size_t page = 0; page < kLanes * kLane / kPage; ++page) {
      if (random_.chance(0.15)) pages_.hide(page);
    }
    random_.chance(0.5) ? submit_batch(works) : submit_all(works);
    for (unsigned rounds = 0; !std::ranges::all_of(works, &Work::over); ++rounds) {
      ASSERT_LT(rounds, 1000U);
      submit_all(works);
    }
    ASSERT_EQ(std::memcmp(&pages_[0], wanted_.data(), wanted_.size()), 0);
    ASSERT_TRUE(device_->idle());
  }
  DeviceStats stats() const { return device_->stats(); }

 private:
  Descriptor make_copy(std::size_t lane) {
    const std::size_t bound = random_.chance(0.5) ? 300 : kLane / 2;
    const std::size_t size = 1 + random_.below(bound);
    const auto place = [&] { return lane * kLane + random_.below(kLane - size + 1); };
    const std::size_t from = place();
    const std::size_t to = place();
    std::memmove(&wanted_[to], &wanted_[from], size);
    return make_move(pages_.address(from), pages_.address(to), static_cast<std::uint32_t>(size),
                     records_[lane]);
  }
  void hand_over(const Descriptor& of) {
    if (device_->setup().queues[0].shared) {
      ASSERT_TRUE(device_->enqcmd(0, *space_, of));
    } else {
      device_->movdir64b(0, *space_, of);
    }
  }
  void submit_all(std::vector<Work>& works) {
    for (std::size_t i = 0; i < works.size(); ++i) {
      records_[i] = {};
      if (!works[i].over) hand_over(works[i].rest);
    }
    device_->run();
    for (std::size_t i = 0; i < works.size(); ++i) {
      if (!works[i].over) take(works[i], records_[i]);
    }
  }
  // SPEC 8.3.2: those before `completed` were processed.
  void submit_batch(std::vector<Work>& works) {
    for (std::size_t i = 0; i < works.size(); ++i) list_[i] = works[i].rest;
    records_ = {};
    Record& own = records_[kLanes];
    hand_over(make_batch(std::span(list_).first(works.size()), own));
    device_->run();
    if (own.code() == Code::hardware) return;
    const bool cut = own.code() == Code::batch_list_fault;
    const std::size_t done = own.completed;
    ASSERT_TRUE(cut ? done < works.size() : done == works.size());
    bool failed = false;
    for (std::size_t i = 0; i < works.size(); ++i) {
      ASSERT_EQ(records_[i].status != 0, i < done);
      failed = failed || (i < done && records_[i].code() != Code::success);
      if (i < done) take(works[i], records_[i]);
    }
    const Code ends_with = cut      ? Code::batch_list_fault
                           : failed ? Code::batch_failed
                                    : Code::success;
    EXPECT_EQ(own.code(), ends_with);
  }
  // SPEC 3.6: touches the page as a CPU would; the rest follows.
  void take(Work& work, const Record& record) {
    if (record.code() == Code::hardware) return;
    if (record.code() == Code::success) {
      work.over = true;
      return;
    }
    ASSERT_EQ(record.code(), Code::page_fault);
    *reinterpret_cast<volatile std::byte*>(record.fault_address);
    work.rest.size -= record.completed;
    if (record.result == 1) return;
    work.rest.source += record.completed;
    work.rest.destination += record.completed;
  }

  Random random_;
  Pages pages_{kLanes * kLane / kPage};
  std::vector<std::byte> wanted_;
  alignas(64) std::array<Record, kLanes + 1> records_{};
  alignas(64) std::array<Descriptor, kLanes> list_{};
  const std::unique_ptr<AddressSpace> space_ = ProcessMemory::open(getpid()).value();
  std::unique_ptr<Device> device_;
};

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

TEST(DevicePrograms, GiveWhatMemmoveGives) {
  const std::uint64_t wanted = from_environment("HEADRACE_DSA_DESCRIPTORS", 20'000);
  std::uint64_t executed = 0;
  std::uint64_t batches = 0;
  std::uint64_t faults = 0;
  for (std::uint64_t seed = from_environment("HEADRACE_DSA_SEED", 1); executed < wanted; ++seed) {
    Program program(seed);
    for (int i = 0; i < 20; ++i) {
      program.round();
      ASSERT_FALSE(HasFailure()) << "HEADRACE_DSA_SEED=" << seed;
    }
    executed += program.stats().executed;
    batches += program.stats().batches;
    faults += program.stats().faults;
  }
  EXPECT_GT(batches, executed / 50);
  EXPECT_GT(faults, executed / 10);
}

}  // namespace
}  // namespace headrace::emulator
