// SPDX-License-Identifier: Apache-2.0
// Random programs through client, queues and emulator, against plain loops on a copy of the
// memory. HEADRACE_DSA_DESCRIPTORS says how many operations (20000).

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "dsa_emulator/dsa_emulator.h"
#include "headrace/random.h"

namespace headrace::dsa {
namespace {

constexpr std::uint64_t kArena = 24 * 4096;
constexpr std::uint64_t kMostBytes = 6000;
constexpr std::uint64_t kMostProgram = 24;

std::uint64_t operations_wanted() {
  const char* text = std::getenv("HEADRACE_DSA_DESCRIPTORS");
  return text == nullptr ? 20'000 : std::strtoull(text, nullptr, 10);
}

using Arena = std::vector<std::uint8_t>;

// Addresses are offsets into the arena here.
std::uint64_t naive_crc(const Arena& arena, const Operation& op) {
  std::uint32_t state = ~static_cast<std::uint32_t>(op.seed);
  for (std::uint64_t i = 0; i < op.bytes; ++i) {
    state ^= arena[op.source + i];
    for (int bit = 0; bit < 8; ++bit) state = (state >> 1) ^ ((state & 1) != 0 ? 0x82f63b78 : 0);
  }
  return static_cast<std::uint32_t>(~state);
}

std::uint8_t pattern_byte(const Operation& op, std::uint64_t i) {
  const std::uint64_t width = (op.flags & flag::pattern16) != 0 ? 16 : 8;
  const std::uint64_t at = i % width;
  return static_cast<std::uint8_t>(op.pattern[at / 8] >> (at % 8 * 8));
}

Outcome naive_delta(Arena& arena, const Operation& op) {
  std::uint64_t used = 0;
  for (std::uint64_t word = 0; word < op.bytes / 8; ++word) {
    const std::uint8_t* const now = &arena[op.destination + word * 8];
    if (std::equal(now, now + 8, &arena[op.source + word * 8])) continue;
    if (used + 10 > op.delta_bytes) return {.result = 2, .value = used};
    arena[op.delta + used] = static_cast<std::uint8_t>(word);
    arena[op.delta + used + 1] = static_cast<std::uint8_t>(word >> 8);
    std::copy(now, now + 8, &arena[op.delta + used + 2]);
    used += 10;
  }
  return {.result = static_cast<std::uint8_t>(used > 0), .value = used};
}

void naive_copy(Arena& arena, std::uint64_t from, std::uint64_t to, std::uint64_t bytes) {
  const Arena held(arena.begin() + static_cast<std::ptrdiff_t>(from),
                   arena.begin() + static_cast<std::ptrdiff_t>(from + bytes));
  std::ranges::copy(held, arena.begin() + static_cast<std::ptrdiff_t>(to));
}

Outcome naive(Arena& arena, const Operation& op) {
  Outcome found;
  switch (op.opcode) {
    case Opcode::copy_crc:
      found.value = naive_crc(arena, op);
      naive_copy(arena, op.source, op.destination, op.bytes);
      break;
    case Opcode::crc: found.value = naive_crc(arena, op); break;
    case Opcode::memmove: naive_copy(arena, op.source, op.destination, op.bytes); break;
    case Opcode::dualcast:
      naive_copy(arena, op.source, op.destination, op.bytes);
      naive_copy(arena, op.source, op.destination2, op.bytes);
      break;
    case Opcode::fill:
      for (std::uint64_t i = 0; i < op.bytes; ++i) arena[op.destination + i] = pattern_byte(op, i);
      break;
    case Opcode::compare:
      for (std::uint64_t i = 0; i < op.bytes && found.result == 0; ++i) {
        if (arena[op.source + i] != arena[op.destination + i]) found = {.result = 1, .value = i};
      }
      break;
    case Opcode::compare_pattern:
      for (std::uint64_t i = 0; i < op.bytes && found.result == 0; ++i) {
        if (arena[op.source + i] != pattern_byte(op, i)) found = {.result = 1, .value = i};
      }
      break;
    case Opcode::create_delta: return naive_delta(arena, op);
    case Opcode::apply_delta:
      for (std::uint64_t at = op.delta; at < op.delta + op.delta_bytes; at += 10) {
        const std::uint64_t word = arena[at] + std::uint64_t{arena[at + 1]} * 256;
        naive_copy(arena, at + 2, op.destination + word * 8, 8);
      }
      break;
    default: break;
  }
  return found;
}

struct Span {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  bool written = false;
};

std::vector<Span> touched(const Operation& op) {
  std::vector<Span> spans;
  for (const Operand& operand : PartialOperation(op).operands()) {
    if (operand.bytes == 0) continue;
    spans.push_back({operand.address, operand.address + operand.bytes, operand.written});
  }
  return spans;
}

bool depends(const std::vector<Span>& a, const std::vector<Span>& b) {
  return std::ranges::any_of(a, [&](const Span& x) {
    return std::ranges::any_of(b, [&](const Span& y) {
      return (x.written || y.written) && x.begin < y.end && y.begin < x.end;
    });
  });
}

class Programs {
 public:
  // May copies overlap themselves? Not where a device spoils things: what it wrote is undefined.
  Programs(std::uint64_t seed, bool overlaps) : random_(seed), overlaps_(overlaps) {}

  // The delta record of the first operation, if it is to be applied, is put into both.
  std::vector<Operation> next(Arena& arena, Arena& wanted) {
    std::vector<Operation> program;
    std::vector<Span> stage;
    if (random_.below(3) == 0) {
      program.push_back(applied_delta(arena, wanted));
      stage = touched(program.front());
    }
    for (std::uint64_t left = 1 + random_.below(kMostProgram); left > 0; --left) {
      Operation op = operation();
      const std::vector<Span> spans = touched(op);
      if (depends(spans, stage)) {
        op.flags |= flag::fence;
        stage.clear();
      }
      stage.insert(stage.end(), spans.begin(), spans.end());
      program.push_back(op);
    }
    return program;
  }

 private:
  std::uint64_t place(std::uint64_t bytes, std::uint64_t step = 1) {
    return random_.below((kArena - bytes) / step) * step;
  }

  Operation operation() {
    constexpr std::array kOpcodes = {
        Opcode::noop,    Opcode::memmove,         Opcode::memmove,      Opcode::fill,
        Opcode::compare, Opcode::compare_pattern, Opcode::create_delta, Opcode::dualcast,
        Opcode::crc,     Opcode::copy_crc,        Opcode::cache_flush};
    for (;;) {
      Operation op{.opcode = kOpcodes[random_.below(kOpcodes.size())]};
      if (op.opcode == Opcode::noop) return op;
      op.bytes = 1 + random_.below(random_.below(4) == 0 ? kMostBytes : 200);
      op.source = place(op.bytes);
      op.destination = place(op.bytes);
      op.pattern = {random_(), random_()};
      op.seed = static_cast<std::uint32_t>(random_());
      if (op.opcode == Opcode::dualcast) {
        op.destination2 = op.destination % 4096 + random_.below(kArena / 4096 - 2) * 4096;
      }
      if (op.opcode == Opcode::create_delta) make_delta(op);
      if (op.opcode == Opcode::fill && random_.below(4) == 0) op.flags |= flag::pattern16;
      if (op.opcode == Opcode::memmove && random_.below(4) == 0) op.flags |= flag::to_cache;
      if (is_allowed(op)) return op;
    }
  }

  // A record of words in ascending order, some of all.
  Operation applied_delta(Arena& arena, Arena& wanted) {
    Operation op{.opcode = Opcode::apply_delta, .bytes = 8 * (1 + random_.below(400))};
    std::vector<std::uint8_t> record;
    for (std::uint64_t word = 0; word < op.bytes / 8; ++word) {
      if (random_.below(4) != 0 && !(record.empty() && word + 1 == op.bytes / 8)) continue;
      record.push_back(static_cast<std::uint8_t>(word));
      record.push_back(static_cast<std::uint8_t>(word >> 8));
      for (int i = 0; i < 8; ++i) record.push_back(static_cast<std::uint8_t>(random_()));
    }
    op.delta_bytes = static_cast<std::uint32_t>(record.size());
    do {
      op.destination = place(op.bytes, 8);
      op.delta = place(op.delta_bytes + 8, 8);
    } while (!PartialOperation(op).repeatable());
    for (Arena* each : {&arena, &wanted}) {
      std::ranges::copy(record, each->begin() + static_cast<std::ptrdiff_t>(op.delta));
    }
    return op;
  }

  void make_delta(Operation& op) {
    op.bytes = (op.bytes + 7) / 8 * 8;
    op.source = place(op.bytes, 8);
    op.destination = place(op.bytes, 8);
    op.delta_bytes = static_cast<std::uint32_t>(80 + random_.below(100) * 8);
    op.delta = place(op.delta_bytes, 8);
  }

  // An operation that writes to what it reads has no meaning, but for a copy.
  bool is_allowed(const Operation& op) const {
    if (op.opcode == Opcode::memmove) return overlaps_ || PartialOperation(op).repeatable();
    if (op.opcode == Opcode::dualcast) {
      const auto spans = touched(op);
      if (spans[1].begin < spans[2].end && spans[2].begin < spans[1].end) return false;
    }
    return PartialOperation(op).repeatable();
  }

  Random random_;
  const bool overlaps_;
};

// The same, at addresses.
std::vector<Operation> placed(std::vector<Operation> program, const Arena& arena) {
  const auto base = reinterpret_cast<std::uintptr_t>(arena.data());
  for (Operation& op : program) {
    op.source += base;
    op.destination += base;
    op.destination2 += base;
    op.delta += base;
  }
  return program;
}

std::string first_difference(const Arena& got, const Arena& wanted) {
  const auto at = std::ranges::mismatch(got, wanted).in1 - got.begin();
  return "byte " + std::to_string(at);
}

// Runs programs on an arena of its own until so many operations are done.
void run_programs(Client& client, std::uint64_t operations, std::uint64_t seed, bool overlaps) {
  Programs programs(seed, overlaps);
  Arena arena(kArena);
  Random random(seed + 1);
  // Many equal bytes, so that comparisons find some.
  for (auto& byte : arena) byte = static_cast<std::uint8_t>(random.below(8) == 0 ? random() : 0);
  Arena wanted = arena;
  for (std::uint64_t done = 0; done < operations;) {
    const std::vector<Operation> program = programs.next(arena, wanted);
    const auto results = client.run(placed(program, arena));
    for (std::size_t i = 0; i < program.size(); ++i) {
      const Outcome should = naive(wanted, program[i]);
      ASSERT_TRUE(results[i].has_value()) << results[i].error().message;
      ASSERT_EQ(results[i]->result, should.result) << to_string(program[i].opcode);
      ASSERT_EQ(results[i]->value, should.value) << to_string(program[i].opcode);
    }
    ASSERT_TRUE(arena == wanted) << first_difference(arena, wanted) << " after " << done;
    done += program.size();
  }
}

struct Scenario {
  std::string name;
  emulator::DeviceOptions device;
  emulator::PortalOptions portals;
  bool overlaps = true;
  unsigned threads = 1;
};

emulator::DeviceOptions device_of(emulator::DeviceFaults faults, bool shared, unsigned engines,
                                  std::uint32_t size) {
  emulator::DeviceOptions options;
  options.faults = std::move(faults);
  options.setup.groups = {{.engines = engines}};
  options.setup.queues = {{.shared = shared, .size = size, .threshold = shared ? size : 0}};
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
      {"Batches", device_of(paging, true, 1, 64), {}},
      {"WritesOfSeveral", device_of(paging, true, 1, 64), {.character_device = true}},
      {"FourEngines", device_of(paging, true, 4, 16), {}},
      {"Dedicated", device_of(paging, false, 2, 8), {}},
      {"Failing", device_of(broken, true, 4, 32), {}, false},
      {"Dropping", device_of(dropping, false, 2, 16), {.character_device = true}, false},
      {"SeveralSubmitters", device_of(paging, true, 4, 32), {}, true, 3},
  };
}

class RandomPrograms : public testing::TestWithParam<Scenario> {};

TEST_P(RandomPrograms, GiveWhatPlainLoopsGive) {
  const Scenario& scenario = GetParam();
  auto devices = emulator::DeviceSet::start({scenario.device}, scenario.portals);
  ASSERT_TRUE(devices) << devices.error().message;
  auto client =
      Client::open((*devices)->devices().front(),
                   {.open = (*devices)->opener(), .limit = std::chrono::milliseconds{100}});
  ASSERT_TRUE(client) << client.error().message;
  const std::uint64_t each = operations_wanted() / scenarios().size() / scenario.threads;
  std::vector<std::jthread> threads;
  for (unsigned i = 0; i < scenario.threads; ++i) {
    threads.emplace_back([&, i] { run_programs(**client, each, i + 1, scenario.overlaps); });
  }
  threads.clear();
  EXPECT_GT((*client)->stats().by_device, each / 2);
  const QueueStats stats = (*client)->device().all().front()->stats();
  EXPECT_GT(stats.faults, 0U);
  if (!scenario.portals.character_device) {
    EXPECT_GT(stats.batches, 0U);
  }
}

INSTANTIATE_TEST_SUITE_P(Client, RandomPrograms, testing::ValuesIn(scenarios()),
                         [](const auto& scenario) { return scenario.param.name; });

}  // namespace
}  // namespace headrace::dsa
