// SPDX-License-Identifier: Apache-2.0
#include "backend/dsa/client.h"
#include "core/fork.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <thread>
#include <vector>

#include "dsa_emulator/dsa_emulator.h"
#include "headrace/random.h"

namespace headrace::dsa {
namespace {

std::uint64_t address(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

struct Bench {
  std::unique_ptr<emulator::DeviceSet> devices;
  std::unique_ptr<Client> client;  // first to go
};

Bench open(emulator::DeviceOptions options = {}, emulator::PortalOptions portals = {},
           Nanoseconds limit = std::chrono::seconds{5}) {
  Bench made;
  made.devices = emulator::DeviceSet::start({std::move(options)}, portals).value();
  made.client = Client::open(made.devices->devices().front(),
                             {.open = made.devices->opener(), .limit = limit})
                    .value();
  return made;
}

std::vector<std::uint8_t> random_bytes(std::size_t size, std::uint64_t seed) {
  Random random(seed);
  std::vector<std::uint8_t> bytes(size);
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
  return bytes;
}

bool copies_all(Client& client, const std::vector<std::uint8_t>& from) {
  std::vector<std::uint8_t> to(from.size());
  return client
             .run({.opcode = Opcode::memmove,
                   .source = address(from.data()),
                   .destination = address(to.data()),
                   .bytes = from.size()})
             .has_value() &&
         from == to;
}

TEST(Client, CopiesAndSaysWhoDidIt) {
  Bench bench = open();
  const auto from = random_bytes(100'000, 1);
  std::vector<std::uint8_t> to(from.size());
  const auto copied = bench.client->run({.opcode = Opcode::memmove,
                                         .source = address(from.data()),
                                         .destination = address(to.data()),
                                         .bytes = from.size()});
  ASSERT_TRUE(copied) << copied.error().message;
  EXPECT_EQ(from, to);
  EXPECT_EQ(bench.client->stats().by_device, 1U);
  EXPECT_EQ(bench.client->stats().by_cpu, 0U);
}

TEST(Client, PagesThatWereNeverTouchedAreBroughtIn) {
  Bench bench = open();
  constexpr std::size_t kBytes = 1 << 20;
  void* const to =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(to, MAP_FAILED);
  const auto from = random_bytes(kBytes, 2);
  ASSERT_TRUE(bench.client->run({.opcode = Opcode::memmove,
                                 .source = address(from.data()),
                                 .destination = address(to),
                                 .bytes = kBytes}));
  EXPECT_EQ(std::memcmp(to, from.data(), kBytes), 0);
  EXPECT_GT(bench.client->device().all().front()->stats().faults, 0U);
  EXPECT_EQ(bench.client->stats().by_cpu, 0U);
  munmap(to, kBytes);
}

TEST(Client, MemoryThatIsNotOursIsAnError) {
  Bench bench = open();
  void* const hole = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  std::vector<std::uint8_t> from(100);
  const auto refused = bench.client->run({.opcode = Opcode::memmove,
                                          .source = address(from.data()),
                                          .destination = address(hole),
                                          .bytes = from.size()});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::invalid) << refused.error().message;
  munmap(hole, 4096);
}

// What the device has no bit for is done by the core, and counted.
TEST(Client, TheCoreDoesWhatTheDeviceCannot) {
  Bench bench = open();
  std::vector<std::uint8_t> to(1000);
  ASSERT_TRUE(bench.client->run({.opcode = Opcode::fill,
                                 .destination = address(to.data()),
                                 .bytes = to.size(),
                                 .pattern = {1, 2},
                                 .flags = flag::pattern16}));
  EXPECT_EQ(to[16], 1);
  EXPECT_EQ(to[8], 2);
  EXPECT_EQ(bench.client->stats().unable, 1U);
}

TEST(Client, AFencedOperationSeesWhatWasBeforeIt) {
  for (const bool batches : {true, false}) {
    Bench bench = open({}, {.character_device = !batches});
    const auto a = random_bytes(5000, 3);
    std::vector<std::uint8_t> b(a.size());
    std::vector<std::uint8_t> c(a.size());
    for (int round = 0; round < 50; ++round) {
      std::ranges::fill(b, 0);
      const std::vector<Operation> program = {{.opcode = Opcode::memmove,
                                               .source = address(a.data()),
                                               .destination = address(b.data()),
                                               .bytes = a.size()},
                                              {.opcode = Opcode::memmove,
                                               .source = address(b.data()),
                                               .destination = address(c.data()),
                                               .bytes = a.size(),
                                               .flags = flag::fence}};
      for (const auto& result : bench.client->run(program)) ASSERT_TRUE(result);
      ASSERT_EQ(a, c);
    }
  }
}

// A record that never comes, a device that is halted, a queue that is disabled: each ends, each
// byte is right.
TEST(Client, WhatIsNotAnsweredEndsAndIsDoneHere) {
  emulator::DeviceOptions options;
  options.faults.lost_record_chance = 0.2;
  Bench bench = open(std::move(options), {}, std::chrono::milliseconds{50});
  const auto from = random_bytes(4096, 4);
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(copies_all(*bench.client, from));
  }
  EXPECT_GT(bench.client->stats().given_back, 0U);
}

TEST(Client, AQueueThatVanishesIsNoHang) {
  Bench bench = open({}, {}, std::chrono::milliseconds{50});
  const auto from = random_bytes(1 << 16, 5);
  std::vector<std::uint8_t> to(from.size());
  const Operation copy{.opcode = Opcode::memmove,
                       .source = address(from.data()),
                       .destination = address(to.data()),
                       .bytes = from.size()};
  ASSERT_TRUE(bench.client->run(copy));
  bench.devices->device(0).disable(0);
  std::ranges::fill(to, 0);
  ASSERT_TRUE(bench.client->run(copy));
  EXPECT_EQ(from, to);
  EXPECT_GE(bench.client->stats().given_back, 1U);
  bench.devices->device(0).enable(0);
  std::this_thread::sleep_for(std::chrono::milliseconds{60});
  std::ranges::fill(to, 0);
  ASSERT_TRUE(bench.client->run(copy));
  EXPECT_EQ(from, to);
  EXPECT_GE(bench.client->stats().by_device, 2U) << "it is used again when it is back";
}

TEST(Client, AnUnknownStatusIsAFailureThatIsMended) {
  emulator::DeviceOptions options;
  options.faults.unknown_status_chance = 0.5;
  options.faults.hardware_chance = 0.3;
  Bench bench = open(std::move(options));
  const auto from = random_bytes(4096, 6);
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(copies_all(*bench.client, from));
  }
  EXPECT_GT(bench.client->stats().given_back, 0U);
}

// DML knows shared queues only, SPDK and DPDK dedicated ones only.
TEST(Client, DedicatedQueuesDropNothing) {
  emulator::DeviceOptions options;
  options.setup.queues = {{.shared = false, .size = 4, .threshold = 0}};
  Bench bench = open(std::move(options));
  const auto from = random_bytes(100 * 64, 7);
  std::vector<std::uint8_t> to(from.size());
  std::vector<Operation> program;
  for (std::size_t i = 0; i < 100; ++i) {
    program.push_back({.opcode = Opcode::memmove,
                       .source = address(from.data() + i * 64),
                       .destination = address(to.data() + i * 64),
                       .bytes = 64});
  }
  for (const auto& result : bench.client->run(program)) ASSERT_TRUE(result);
  EXPECT_EQ(from, to);
  EXPECT_EQ(bench.devices->device(0).stats().dropped, 0U);
  EXPECT_EQ(bench.client->stats().by_cpu, 0U);
}

// An opcode that describe() does not know, though the device has it, is sent to none; the core
// does not know it either.
TEST(Client, WhatNobodyHereKnowsReachesNoDevice) {
  Bench bench = open();
  for (const int code : {0x12, 0x1c, 0x2f}) {
    const auto refused = bench.client->run({.opcode = static_cast<Opcode>(code), .bytes = 64});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::invalid);
  }
  EXPECT_EQ(bench.client->device().all().front()->stats().descriptors, 0U);
}

TEST(Client, WhatNobodyHereKnowsKeepsItsProgramFromRunning) {
  Bench bench = open();
  std::uint64_t word = 7;
  const auto results = bench.client->run(
      std::vector<Operation>{{.opcode = Opcode::fill, .destination = address(&word), .bytes = 8},
                             {.opcode = Opcode::gather_copy, .bytes = 8}});
  EXPECT_EQ(results[0].error().code, ErrorCode::cancelled);
  EXPECT_EQ(results[1].error().code, ErrorCode::invalid);
  EXPECT_EQ(word, 7U);
}

// The queues are the parent's, and whoever waits for what was in flight is not there.
TEST(Client, AForkedChildsDoesEverythingByTheCore) {
  Bench bench = open();
  fork_generation();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::uint64_t word = 0;
    const auto filled = bench.client->run(
        {.opcode = Opcode::fill, .destination = address(&word), .bytes = 8, .pattern = {7}});
    _exit(filled && word == 7 && bench.client->stats().unable == 1 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(Client, WhatReachesBeyondAllMemoryIsInvalid) {
  Bench bench = open();
  std::vector<std::uint8_t> bytes(100);
  for (const auto& operation : std::vector<Operation>{
           {.opcode = Opcode::fill, .destination = address(bytes.data()), .bytes = ~0ULL},
           {.opcode = Opcode::crc, .source = ~0ULL - 5, .bytes = 10}}) {
    const auto refused = bench.client->run(operation);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::invalid);
  }
}

// The device has no such fill; a core would crash where the memory is not there.
TEST(Client, MemoryThatIsNotOursIsAnErrorOnTheCoreToo) {
  Bench bench = open();
  const auto refused = bench.client->run(
      {.opcode = Opcode::fill, .destination = 4096, .bytes = 64, .flags = flag::pattern16});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::invalid);
}

TEST(Client, AHintWithoutMeaningIsLeftOut) {
  Bench bench = open();
  const auto bytes = random_bytes(100, 8);
  ASSERT_TRUE(bench.client->run({.opcode = Opcode::crc,
                                 .source = address(bytes.data()),
                                 .bytes = bytes.size(),
                                 .flags = flag::to_cache}));
  EXPECT_EQ(bench.client->stats().by_device, 1U);
}

// Deltas are not cut: what a queue does not take at once the core does.
TEST(Client, ADeltaLargerThanAQueueTakesIsTheCores) {
  emulator::DeviceOptions options;
  options.setup.queues = {{.max_transfer = 1024}};
  Bench bench = open(std::move(options));
  std::vector<std::uint64_t> before(256, 1);
  std::vector<std::uint64_t> after = before;
  after[200] = 2;
  std::vector<std::uint64_t> record(16);
  const auto made = bench.client->run({.opcode = Opcode::create_delta,
                                       .source = address(before.data()),
                                       .destination = address(after.data()),
                                       .bytes = 2048,
                                       .delta = address(record.data()),
                                       .delta_bytes = 128});
  ASSERT_TRUE(made);
  EXPECT_EQ(made->value, 10U);
  EXPECT_EQ(bench.client->stats().unable, 1U);
  EXPECT_EQ(bench.client->device().all().front()->stats().failed, 0U);
}

// Refused before anything was done (status 0x16), so the core may do it.
TEST(Client, WhatADeviceRefusesForItsOverlapTheCoreDoes) {
  Bench bench = open();
  auto bytes = random_bytes(1000, 9);
  auto wanted = bytes;
  std::memmove(wanted.data() + 10, wanted.data(), 500);
  ASSERT_TRUE(bench.client->run({.opcode = Opcode::copy_crc,
                                 .source = address(bytes.data()),
                                 .destination = address(bytes.data() + 10),
                                 .bytes = 500}));
  EXPECT_EQ(bytes, wanted);
  EXPECT_EQ(bench.client->stats().given_back, 1U);
}

TEST(Client, ADrainAmongOthersIsTheDevices) {
  Bench bench = open();
  const std::vector<Operation> program(5, {.opcode = Opcode::drain});
  for (const auto& result : bench.client->run(program)) EXPECT_TRUE(result);
  EXPECT_EQ(bench.client->stats().by_device, 5U);
}

}  // namespace
}  // namespace headrace::dsa
