// SPDX-License-Identifier: Apache-2.0
// Random programs for an emulated device: descriptors that work in lanes of a piece of memory,
// and plain loops that do the same to a copy of it.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "headrace/random.h"
#include "tests/support/dsa/device/device_testing.h"

namespace headrace::emulator::test {

inline constexpr std::size_t kLanes = 4;
inline constexpr std::size_t kLane = 4 * kPage;  // what one of several at once works in
inline constexpr std::size_t kSides =
    kLanes * kLane;  // behind the lanes: a page of deltas for each
inline constexpr std::size_t kMostAtOnce = 12;
inline constexpr std::size_t kArena = kSides / kPage + kMostAtOnce;

// The result of an operation, over all its parts.
struct Answer {
  std::uint8_t result = 0;
  std::uint64_t place = 0;  // of a difference
  std::uint64_t value = 0;  // CRC, bytes of the delta record

  friend bool operator==(const Answer&, const Answer&) = default;
};

// The same by plain loops, on a copy of the memory.
class Loops {
 public:
  explicit Loops(Pages& pages)
      : base_(pages.address()), bytes_(pages.all().begin(), pages.all().end()) {}

  std::uint8_t* at(std::uint64_t address) {
    return reinterpret_cast<std::uint8_t*>(bytes_.data() + (address - base_));
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }

  Answer run(const Descriptor& of) {
    switch (of.opcode()) {
      case Opcode::memmove: std::memmove(at(of.destination), at(of.source), of.size); break;
      case Opcode::dualcast:
        std::memcpy(at(of.extra[0]), at(of.source), of.size);
        std::memcpy(at(of.destination), at(of.source), of.size);
        break;
      case Opcode::fill: fill(of); break;
      case Opcode::compare: return compare(of);
      case Opcode::compare_pattern: return compare_pattern(of);
      case Opcode::create_delta: return create_delta(of);
      case Opcode::apply_delta: apply_delta(of); break;
      case Opcode::copy_crc:
        std::memcpy(at(of.destination), at(of.source), of.size);
        return {.value = crc(of)};
      case Opcode::crc: return {.value = crc(of)};
      default: break;
    }
    return {};
  }

 private:
  void fill(const Descriptor& of) {
    const std::uint64_t words[] = {of.source, of.has(flag::pattern16) ? of.extra[0] : of.source};
    const auto* pattern = reinterpret_cast<const std::uint8_t*>(words);
    for (std::uint32_t i = 0; i < of.size; ++i) at(of.destination)[i] = pattern[i % 16];
  }
  Answer compare(const Descriptor& of) {
    for (std::uint32_t i = 0; i < of.size; ++i) {
      if (at(of.source)[i] != at(of.destination)[i]) return {.result = 1, .place = i};
    }
    return {};
  }
  Answer compare_pattern(const Descriptor& of) {
    const auto* pattern = reinterpret_cast<const std::uint8_t*>(&of.destination);
    for (std::uint32_t i = 0; i < of.size; ++i) {
      if (at(of.source)[i] != pattern[i % 8]) return {.result = 1, .place = i};
    }
    return {};
  }
  Answer create_delta(const Descriptor& of) {
    Answer answer;
    for (std::uint32_t i = 0; i < of.size; i += 8) {
      if (std::memcmp(at(of.source) + i, at(of.destination) + i, 8) == 0) continue;
      if (answer.value + 10 > of.extra[1]) return {2, i, answer.value};
      const auto number = static_cast<std::uint16_t>(i / 8);
      std::memcpy(at(of.extra[0]) + answer.value, &number, 2);
      std::memcpy(at(of.extra[0]) + answer.value + 2, at(of.destination) + i, 8);
      answer = {1, 0, answer.value + 10};
    }
    return answer;
  }
  void apply_delta(const Descriptor& of) {
    for (std::uint64_t i = 0; i < of.extra[0]; i += 10) {
      std::uint16_t number = 0;
      std::memcpy(&number, at(of.source) + i, 2);
      std::memcpy(at(of.destination) + 8 * std::size_t{number}, at(of.source) + i + 2, 8);
    }
  }
  // CRC-32C as in RFC 3720, or without its inversion and reflection.
  std::uint64_t crc(const Descriptor& of) {
    const bool plain = of.has(flag::no_reflection);
    auto state = static_cast<std::uint32_t>(plain ? of.extra[0] : ~of.extra[0]);
    for (std::uint32_t i = 0; i < of.size; ++i) {
      for (unsigned bit = 0; bit < 8; ++bit) {
        const std::uint32_t in = std::uint32_t{at(of.source)[i]} >> bit & 1;
        if (plain) {
          const std::uint32_t out = state >> 31 ^ in;
          state = state << 1 ^ (out != 0 ? 0x1edc6f41 : 0);
        } else {
          const std::uint32_t out = (state & 1) ^ in;
          state = state >> 1 ^ (out != 0 ? 0x82f63b78 : 0);
        }
      }
    }
    return plain ? state : ~state;
  }

  const std::uint64_t base_;
  std::vector<std::byte> bytes_;
};

// One operation, and how far it came.
struct Errand {
  Descriptor first;
  Descriptor rest;  // what is to be submitted next
  bool invalid = false;
  bool over = false;
  unsigned rounds = 0;
  std::uint64_t before = 0;   // bytes done in earlier parts
  std::uint64_t written = 0;  // bytes of deltas, of earlier parts
  Answer answer;
};

// Makes descriptors that work in a lane of their own.
class Maker {
 public:
  Maker(Random& random, Pages& pages, const DeviceSetup& setup)
      : random_(random), pages_(pages), setup_(setup) {}

  Errand make(std::size_t lane, std::size_t side, Loops& loops) {
    lane_ = lane * kLane;
    side_ = kSides + side * kPage;
    static constexpr Opcode kKinds[] = {
        Opcode::noop,         Opcode::memmove,          Opcode::memmove,  Opcode::fill,
        Opcode::compare,      Opcode::compare,          Opcode::dualcast, Opcode::compare_pattern,
        Opcode::create_delta, Opcode::apply_delta,      Opcode::crc,      Opcode::copy_crc,
        Opcode::cache_flush,  Opcode::translation_fetch};
    Opcode opcode = kKinds[random_.below(std::size(kKinds))];
    if (!setup_.op_cap.has(opcode)) opcode = Opcode::memmove;
    Errand errand;
    errand.first = shape(opcode, loops);
    if (random_.chance(0.02)) {
      errand.invalid = true;
      errand.first.reserved = 1;
    }
    if (setup_.queues[0].block_on_fault && errand.first.size > 0 && random_.chance(0.3)) {
      errand.first.command |= flag::block_on_fault;
    }
    errand.rest = errand.first;
    return errand;
  }

 private:
  std::uint32_t size(std::size_t most) {
    const std::size_t bound = random_.chance(0.5) ? 300 : random_.chance(0.6) ? 5000 : most;
    return static_cast<std::uint32_t>(1 + random_.below(std::min(bound, most)));
  }
  // Anywhere in part `part` of `parts` of the lane.
  std::uint64_t place(std::size_t bytes, std::size_t part = 0, std::size_t parts = 1) {
    const std::size_t room = kLane / parts;
    return pages_.address(lane_ + part * room + random_.below(room - bytes + 1));
  }
  Descriptor shape(Opcode opcode, Loops& loops) {
    Descriptor of;
    of.set(opcode, kRecord);
    if (opcode == Opcode::noop) return of;
    if (opcode == Opcode::create_delta || opcode == Opcode::apply_delta) return delta(of, loops);
    const bool apart = opcode == Opcode::copy_crc || opcode == Opcode::dualcast;
    of.size = size(apart ? kLane / 3 - kPage : kLane / 2);
    of.source = place(of.size, 0, apart ? 3 : 1);
    of.destination = place(of.size, 1, apart ? 3 : 2);
    if (opcode == Opcode::memmove) of.destination = place(of.size);
    if (opcode == Opcode::memmove && random_.chance(0.3)) of.destination = near(of);
    if (opcode == Opcode::crc || opcode == Opcode::translation_fetch) of.destination = 0;
    if (opcode == Opcode::cache_flush) of.source = 0;
    if (opcode == Opcode::dualcast) second_destination(of);
    if (opcode == Opcode::fill) pattern(of);
    if (opcode == Opcode::compare_pattern) copy_pattern(of, loops);
    if (opcode == Opcode::compare) make_equal(of, loops);
    if (opcode == Opcode::crc || opcode == Opcode::copy_crc) {
      of.extra[0] = random_() & 0xffffffff;
      if (random_.chance(0.3)) of.command |= flag::no_reflection;
    }
    return of;
  }
  // A destination that overlaps its source.
  std::uint64_t near(const Descriptor& of) {
    const std::uint64_t begin = pages_.address(lane_);
    const std::uint64_t shift = random_.below(of.size);
    const bool behind = of.source + shift + of.size <= begin + kLane && random_.chance(0.7);
    if (behind) return of.source + shift;
    return of.source - std::min(shift, of.source - begin);
  }
  void second_destination(Descriptor& of) {
    const std::uint64_t part = pages_.address(lane_ + 2 * kLane / 3 + kPage - 1) / kPage * kPage;
    of.extra[0] = part + of.destination % kPage;
    const std::uint64_t room = pages_.address(lane_ + kLane) - of.extra[0];
    of.size = static_cast<std::uint32_t>(std::min<std::uint64_t>(of.size, room));
    of.size =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(of.size, of.extra[0] - of.destination));
  }
  void pattern(Descriptor& of) {
    of.source = random_();
    if (!setup_.gen_cap.fill16() || random_.chance(0.5)) return;
    of.command |= flag::pattern16;
    of.extra[0] = random_();
  }
  // The CPU prepares equal memory, so comparisons often go far.
  void copy_pattern(Descriptor& of, Loops& loops) {
    of.destination = random_.chance(0.5) ? 0 : random_();
    if (!random_.chance(0.8)) return;
    for (std::uint32_t i = 0; i < of.size; ++i) {
      const auto byte = static_cast<std::uint8_t>(of.destination >> 8 * (i % 8));
      set(loops, of.source + i, byte);
    }
    spoil(loops, of.source, of.size);
  }
  void make_equal(Descriptor& of, Loops& loops) {
    if (!random_.chance(0.8)) return;
    for (std::uint32_t i = 0; i < of.size; ++i) {
      set(loops, of.destination + i, *loops.at(of.source + i));
    }
    spoil(loops, of.destination, of.size);
  }
  void spoil(Loops& loops, std::uint64_t address, std::uint32_t size) {
    if (random_.chance(0.5)) return;
    const std::uint64_t at = address + random_.below(size);
    set(loops, at, static_cast<std::uint8_t>(*loops.at(at) ^ 1));
  }
  // Sets a byte by the CPU, in the memory and in its copy.
  void set(Loops& loops, std::uint64_t address, std::uint8_t value) {
    *loops.at(address) = value;
    pages_[address - pages_.address()] = std::byte{value};
  }
  Descriptor delta(Descriptor of, Loops& loops) {
    of.size = (size(kLane / 2 - 8) + 7) / 8 * 8;
    of.source = (place(of.size + 8, 0, 2) + 7) / 8 * 8;
    of.destination = (place(of.size + 8, 1, 2) + 7) / 8 * 8;
    const std::uint64_t side = pages_.address(side_);
    if (of.opcode() == Opcode::create_delta) {
      of.extra = {side + 8 * random_.below(10), 80 + random_.below(3900), 0};
      if (random_.chance(0.7)) {
        for (std::uint32_t i = 0; i < of.size; ++i) {
          if (i % 8 == 0 && random_.chance(0.1)) continue;
          set(loops, of.destination + i, *loops.at(of.source + i));
        }
      }
      return of;
    }
    of.source = side + 8 * random_.below(10);
    for (std::uint64_t word = random_.below(3); word < of.size / 8; word += 1 + random_.below(20)) {
      if (of.extra[0] > 3900) break;
      set(loops, of.source + of.extra[0], static_cast<std::uint8_t>(word));
      set(loops, of.source + of.extra[0] + 1, static_cast<std::uint8_t>(word >> 8));
      of.extra[0] += 10;
    }
    if (of.extra[0] > 0) return of;
    Descriptor none;
    none.set(Opcode::noop, kRecord);
    return none;
  }

  Random& random_;
  Pages& pages_;
  const DeviceSetup& setup_;
  std::size_t lane_ = 0;
  std::size_t side_ = 0;
};

}  // namespace headrace::emulator::test
