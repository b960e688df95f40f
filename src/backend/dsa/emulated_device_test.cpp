// SPDX-License-Identifier: Apache-2.0
// Copies by OpenDevice on emulated devices, which execute descriptors as the specification says.
// HEADRACE_DSA_DESCRIPTORS is the number of random copies (default 20000).

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "backend/dsa/queue/open_device.h"
#include "headrace/random.h"
#include "tests/support/bytes.h"
#include "tests/support/dsa/dsa.h"

namespace headrace::dsa {
namespace {

using Memory = std::vector<std::uint8_t>;

std::uint64_t at(const Memory& memory, std::size_t offset = 0) {
  return reinterpret_cast<std::uintptr_t>(memory.data() + offset);
}

Memory random_bytes(std::size_t size, std::uint64_t seed) {
  Memory bytes(size);
  headrace::test::fill_random(std::as_writable_bytes(std::span(bytes)), seed);
  return bytes;
}

void copy_by_core(const Copy& copy) {
  std::memcpy(reinterpret_cast<void*>(copy.destination), reinterpret_cast<const void*>(copy.source),
              copy.bytes);
}

struct Bench {
  std::unique_ptr<emulator::DeviceSet> devices;
  OpenDevice opened;
};

// Long, so that no copy is late on a busy host.
constexpr Nanoseconds kLong = std::chrono::minutes{10};
constexpr Nanoseconds kShort = std::chrono::milliseconds{100};

Bench open(emulator::DeviceOptions options = {}, Nanoseconds limit = kLong,
           emulator::PortalOptions portals = {}) {
  auto devices = emulator::DeviceSet::start({std::move(options)}, portals).value();
  auto opened =
      OpenDevice::open(devices->devices().front(), {.open = devices->opener(), .limit = limit})
          .value();
  return {std::move(devices), std::move(opened)};
}

// The copies that one thread waits for; any thread that polls may end them.
struct Waiter {
  std::vector<std::unique_ptr<Failure>> failures;  // nullptr: done
  std::atomic<std::size_t> left;
};

void poll(OpenDevice& device) {
  std::vector<Ended> ended;
  device.poll(ended);
  for (Ended& each : ended) {
    auto& waiter = *static_cast<Waiter*>(each.owner);
    waiter.failures[each.tag] = std::move(each.failure);
    --waiter.left;
  }
  if (ended.empty()) std::this_thread::yield();
}

// Returns the failure of each copy, nullptr if it succeeded.
std::vector<std::unique_ptr<Failure>> run(OpenDevice& device, const std::vector<Copy>& copies) {
  Waiter waiter{std::vector<std::unique_ptr<Failure>>(copies.size()), copies.size()};
  std::vector<Submission> submissions;
  for (std::size_t i = 0; i < copies.size(); ++i) submissions.push_back({copies[i], i, &waiter});
  for (std::span<const Submission> rest(submissions); !rest.empty();) {
    const auto taken = device.submit(rest);
    for (const Submission& each : taken ? std::span<const Submission>() : rest) {
      waiter.failures[each.tag] = std::make_unique<Failure>(taken.error(), PartialCopy(each.copy));
      --waiter.left;
    }
    rest = rest.subspan(taken.value_or(rest.size()));
    if (!rest.empty()) poll(device);
  }
  while (waiter.left > 0) poll(device);
  return std::move(waiter.failures);
}

std::size_t failed(const std::vector<std::unique_ptr<Failure>>& failures) {
  return failures.size() - static_cast<std::size_t>(std::ranges::count_if(
                               failures, [](const auto& each) { return each == nullptr; }));
}

TEST(EmulatedDevice, PagesThatWereNeverTouched_AreBroughtIn) {
  Bench bench = open();
  constexpr std::size_t kBytes = 1 << 20;
  void* const to =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(to, MAP_FAILED);
  const Memory from = random_bytes(kBytes, 2);
  EXPECT_EQ(failed(run(bench.opened, {{at(from), reinterpret_cast<std::uintptr_t>(to), kBytes}})),
            0U);
  EXPECT_EQ(std::memcmp(to, from.data(), kBytes), 0);
  EXPECT_GT(bench.opened.all().front()->stats().faults, 0U);
  munmap(to, kBytes);
}

TEST(EmulatedDevice, DmlAFailureInABatch_StopsNoOther) {
  Bench bench = open();
  const Memory from = random_bytes(8 * 64, 3);
  Memory to(from.size());
  std::vector<Copy> copies;
  for (std::size_t i = 0; i < 8; ++i) copies.push_back({at(from, i * 64), at(to, i * 64), 64});
  copies[2].destination = 4096;  // an address that is not mapped
  const auto failures = run(bench.opened, copies);
  ASSERT_NE(failures[2], nullptr);
  EXPECT_EQ(failures[2]->why.code, ErrorCode::invalid);
  EXPECT_EQ(failed(failures), 1U);
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(std::equal(&from[i * 64], &from[i * 64] + 64, &to[i * 64]), i != 2) << i;
  }
}

TEST(EmulatedDevice, DisabledQueue_FailsInTime_AndIsUsedAgainWhenItIsBack) {
  Bench bench = open({}, kShort);
  const Memory from = random_bytes(1 << 16, 5);
  Memory to(from.size());
  const std::vector<Copy> copy = {{at(from), at(to), from.size()}};
  bench.devices->device(0).disable(0);
  EXPECT_EQ(failed(run(bench.opened, copy)), 1U);
  bench.devices->device(0).enable(0);
  std::ranges::fill(to, 0);
  while (failed(run(bench.opened, copy)) > 0) std::this_thread::yield();
  EXPECT_EQ(from, to);
}

struct Scenario {
  std::string name;
  emulator::DeviceOptions device;
  emulator::PortalOptions portals = {};
  bool fails = false;
  unsigned threads = 1;
};

emulator::DeviceOptions device_of(emulator::DeviceFaults faults, bool shared, unsigned engines,
                                  std::uint32_t size, std::uint64_t max_transfer = 1 << 20) {
  emulator::DeviceOptions options;
  options.faults = std::move(faults);
  options.setup.engines = engines;
  options.setup.queues = {
      {.shared = shared, .size = size, .threshold = size, .max_transfer = max_transfer}};
  return options;
}

std::vector<Scenario> scenarios() {
  const emulator::DeviceFaults paging{.page_fault_chance = 0.1};
  const emulator::DeviceFaults broken{.page_fault_chance = 0.05,
                                      .hardware_chance = 0.01,
                                      .unknown_status_chance = 0.01,
                                      .lost_record_chance = 0.0002};
  const emulator::DeviceFaults dropping{.page_fault_chance = 0.05, .drop_chance = 0.0002};
  return {
      {"Batches", device_of(paging, true, 1, 64)},
      {"WritesOfSeveral", device_of(paging, true, 1, 64), {.character_device = true}},
      {"FourEngines", device_of(paging, true, 4, 16)},
      {"Parts", device_of(paging, true, 4, 16, 512)},
      {"Dedicated", device_of(paging, false, 2, 8)},
      {"Failing", device_of(broken, true, 4, 32), {}, true},
      {"Dropping", device_of(dropping, false, 2, 16), {.character_device = true}, true},
      {"SeveralSubmitters", device_of(paging, true, 4, 32), {}, false, 3},
  };
}

// Copies between random places, at most one to each page. The core does the rest of a device's
// copies.
void run_copies(OpenDevice& device, std::uint64_t count, std::uint64_t seed, bool fails) {
  constexpr std::size_t kPages = 24;
  constexpr std::size_t kPage = 4096;
  const Memory from = random_bytes(kPages * kPage, seed);
  Memory to(from.size());
  Memory wanted = to;
  Random random(seed + 1);
  for (std::uint64_t done = 0; done < count;) {
    std::vector<Copy> copies;
    for (std::size_t page = random.below(kPages); page < kPages; page += 1 + random.below(2)) {
      const std::size_t bytes = 1 + random.below(kPage);
      const std::size_t source = random.below(from.size() - bytes);
      const std::size_t target = page * kPage + random.below(kPage - bytes + 1);
      copies.push_back({at(from, source), at(to, target), bytes, random.below(2) == 0});
      std::copy_n(&from[source], bytes, &wanted[target]);
    }
    for (const auto& failure : run(device, copies)) {
      ASSERT_TRUE(fails || failure == nullptr) << failure->why.message;
      if (failure != nullptr) copy_by_core(failure->rest.rest());
    }
    if (to != wanted) {  // which compares all at once; mismatch() takes each byte
      FAIL() << "after " << done << " copies the first byte that differs is "
             << std::ranges::mismatch(to, wanted).in1 - to.begin();
    }
    done += copies.size();
  }
}

std::uint64_t copies_wanted() {
  const char* text = std::getenv("HEADRACE_DSA_DESCRIPTORS");
  return text == nullptr ? 20'000 : std::strtoull(text, nullptr, 10);
}

class RandomCopies : public testing::TestWithParam<Scenario> {};

TEST_P(RandomCopies, GiveTheBytesOfMemcpy) {
  const Scenario& scenario = GetParam();
  Bench bench = open(scenario.device, scenario.fails ? kShort : kLong, scenario.portals);
  const std::uint64_t each = copies_wanted() / scenarios().size() / scenario.threads;
  std::vector<std::jthread> threads;
  for (unsigned i = 0; i < scenario.threads; ++i) {
    threads.emplace_back([&, i] { run_copies(bench.opened, each, i + 1, scenario.fails); });
  }
  threads.clear();
  const QueueStats stats = bench.opened.all().front()->stats();
  EXPECT_GT(stats.faults, 0U);
  EXPECT_EQ(stats.batches > 0, !scenario.portals.character_device);
  const bool drops = scenario.device.faults.drop_chance > 0;
  EXPECT_TRUE(drops || bench.devices->device(0).stats().dropped == 0);
}

INSTANTIATE_TEST_SUITE_P(EmulatedDevice, RandomCopies, testing::ValuesIn(scenarios()),
                         [](const auto& scenario) { return scenario.param.name; });

}  // namespace
}  // namespace headrace::dsa
