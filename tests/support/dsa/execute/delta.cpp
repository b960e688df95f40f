// SPDX-License-Identifier: Apache-2.0
// The two operations on delta records (SPEC 8.3, "Create Delta Record", "Apply Delta Record"):
// lists of 10 bytes each, the number of an 8-byte word (16 bits) and the word.
#include <array>
#include <cstring>
#include <optional>
#include <span>

#include "tests/support/dsa/execute/operations.h"

namespace headrace::emulator {
namespace {

constexpr std::uint64_t kWord = 8;
constexpr std::uint64_t kDeltaSize = 10;
using Delta = std::array<std::byte, kDeltaSize>;

Delta make_delta(std::uint64_t offset, const std::byte* word) {
  const auto number = static_cast<std::uint16_t>(offset / kWord);
  Delta delta;
  std::memcpy(delta.data(), &number, sizeof(number));
  std::memcpy(delta.data() + sizeof(number), word, kWord);
  return delta;
}

// How far a comparison came: bytes of the sources, bytes of the record.
struct DeltaProgress {
  std::uint64_t done = 0;
  std::uint64_t written = 0;
  bool full = false;  // the next delta does not fit
};

// Adds the differences among the first n bytes of both. False: full, or a fault.
bool add_deltas(const Descriptor& descriptor, Access& access, const std::byte* first,
                const std::byte* second, std::size_t n, DeltaProgress& progress) {
  for (std::size_t i = 0; i + kWord <= n; i += kWord, progress.done += kWord) {
    if (std::memcmp(first + i, second + i, kWord) == 0) continue;
    if (progress.written + kDeltaSize > descriptor.extra[1]) {
      progress.full = true;
      return false;
    }
    const Delta delta = make_delta(progress.done, second + i);
    if (access.write(descriptor.extra[0] + progress.written, delta) < kDeltaSize) return false;
    progress.written += kDeltaSize;
  }
  return true;
}

}  // namespace

// Result 0: equal; 1: the record has all differences; 2: they do not fit, and `completed` is where
// the first one is that did not.
Record create_delta(const Descriptor& descriptor, Access& access) {
  const Region regions[] = {{descriptor.source, Touch::read},
                            {descriptor.destination, Touch::read}};
  std::array<std::byte, kPage> first;
  std::array<std::byte, kPage> second;
  DeltaProgress progress;
  Record record;
  bool going = true;
  while (going && progress.done < descriptor.size) {
    const std::size_t n = access.next(progress.done, descriptor.size, regions, false, kWord);
    const std::size_t had =
        access.read(descriptor.source + progress.done, std::span(first).first(n));
    const std::size_t both =
        access.read(descriptor.destination + progress.done, std::span(second).first(had));
    going = add_deltas(descriptor, access, first.data(), second.data(), both, progress) && n > 0 &&
            both == n;
  }
  if (going || progress.full) {
    const std::uint8_t result = progress.full ? 2 : progress.written > 0 ? 1 : 0;
    record = judged(descriptor, result, (descriptor.extra[2] >> result & 1) != 0);
    if (progress.full) record.completed = static_cast<std::uint32_t>(progress.done);
  } else {
    record = stopped(access, progress.done);
  }
  record.extra[0] = progress.written;
  return record;
}

// `completed` after a fault counts bytes of the delta record.
Record apply_delta(const Descriptor& descriptor, Access& access) {
  const Region regions[] = {{descriptor.source, Touch::read}};
  const std::uint64_t size = descriptor.extra[0];
  std::optional<std::uint16_t> last;
  for (std::uint64_t done = 0; done < size; done += kDeltaSize) {
    Delta delta;
    std::uint16_t number = 0;
    if (access.next(done, size, regions, false, kDeltaSize) == 0 ||
        access.read(descriptor.source + done, delta) < kDeltaSize) {
      return stopped(access, done);
    }
    std::memcpy(&number, delta.data(), sizeof(number));
    Code error = Code::none;
    if (last && number <= *last) error = Code::delta_offset_order;
    if (std::uint64_t{number} * kWord >= descriptor.size) error = Code::delta_offset_range;
    if (error != Code::none) return {.status = static_cast<std::uint8_t>(error)};
    const auto word = std::span(delta).subspan(sizeof(number));
    if (access.write(descriptor.destination + number * kWord, word) < kWord) {
      return stopped(access, done);
    }
    last = number;
  }
  return succeeded();
}

}  // namespace headrace::emulator
