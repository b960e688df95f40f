// SPDX-License-Identifier: Apache-2.0
#include "backend/dsa/operation/cpu_operation.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "backend/dsa/operation/crc.h"
#include "core/fail.h"
#include "headrace/copy.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace headrace::dsa {
namespace {

constexpr std::uint64_t kDeltaWord = 8;
constexpr std::uint64_t kDeltaEntry = 10;  // the number of a word, and the word

std::byte* memory_at(std::uint64_t address) { return reinterpret_cast<std::byte*>(address); }

std::span<std::byte> memory_at(std::uint64_t address, std::uint64_t bytes) {
  return {memory_at(address), bytes};
}

void copy(std::uint64_t to, const Operation& operation) {
  // Without bytes the addresses may be null.
  if (operation.bytes == 0) return;
  std::memmove(memory_at(to), memory_at(operation.source), operation.bytes);
}

void fill(const Operation& operation) {
  const std::size_t width = (operation.flags & flag::pattern16) != 0 ? 16 : 8;
  std::array<std::byte, 16> pattern;
  std::memcpy(pattern.data(), operation.pattern.data(), pattern.size());
  std::byte* const to = memory_at(operation.destination);
  for (std::uint64_t at = 0; at < operation.bytes; at += width) {
    std::memcpy(to + at, pattern.data(), std::min<std::uint64_t>(width, operation.bytes - at));
  }
}

Outcome difference_at(std::uint64_t at, std::uint64_t bytes) {
  if (at == bytes) return {};
  return {.result = 1, .value = at};
}

Outcome compare(const Operation& operation) {
  const auto first = memory_at(operation.source, operation.bytes);
  const auto second = memory_at(operation.destination, operation.bytes);
  const auto differs = std::ranges::mismatch(first, second).in1;
  return difference_at(static_cast<std::uint64_t>(differs - first.begin()), operation.bytes);
}

Outcome compare_pattern(const Operation& operation) {
  std::array<std::byte, 8> pattern;
  std::memcpy(pattern.data(), operation.pattern.data(), pattern.size());
  const std::byte* const memory = memory_at(operation.source);
  std::uint64_t at = 0;
  while (at < operation.bytes && memory[at] == pattern[at % pattern.size()]) ++at;
  return difference_at(at, operation.bytes);
}

Outcome checksum(const Operation& operation) {
  Crc crc(operation.seed,
          {.wide = (operation.flags & flag::crc64) != 0,
           .no_reflection = (operation.flags & flag::no_reflection) != 0,
           .no_data_reflection = (operation.flags & flag::no_data_reflection) != 0});
  crc.add(memory_at(operation.source, operation.bytes));
  return {.value = crc.value()};
}

Outcome create_delta_record(const Operation& operation) {
  const std::byte* const first = memory_at(operation.source);
  const std::byte* const second = memory_at(operation.destination);
  std::byte* const record = memory_at(operation.delta);
  std::uint64_t written = 0;
  for (std::uint64_t at = 0; at + kDeltaWord <= operation.bytes; at += kDeltaWord) {
    if (std::memcmp(first + at, second + at, kDeltaWord) == 0) continue;
    if (written + kDeltaEntry > operation.delta_bytes) return {.result = 2, .value = written};
    const auto number = static_cast<std::uint16_t>(at / kDeltaWord);
    std::memcpy(record + written, &number, sizeof number);
    std::memcpy(record + written + sizeof number, second + at, kDeltaWord);
    written += kDeltaEntry;
  }
  return {.result = static_cast<std::uint8_t>(written > 0 ? 1 : 0), .value = written};
}

Status apply_delta_record(const Operation& operation) {
  const std::byte* const record = memory_at(operation.delta);
  for (std::uint64_t at = 0; at + kDeltaEntry <= operation.delta_bytes; at += kDeltaEntry) {
    std::uint16_t number = 0;
    std::memcpy(&number, record + at, sizeof number);
    if ((number + std::uint64_t{1}) * kDeltaWord > operation.bytes) {
      return fail(ErrorCode::invalid, "the delta record leaves its destination; it is of another");
    }
    std::memcpy(memory_at(operation.destination + number * kDeltaWord), record + at + sizeof number,
                kDeltaWord);
  }
  return {};
}

void flush([[maybe_unused]] const Operation& operation) {
#if defined(__x86_64__)
  if (operation.bytes == 0) return;
  constexpr std::uint64_t kLine = 64;
  const std::uint64_t begin = operation.destination / kLine * kLine;
  const std::uint64_t end = operation.destination + operation.bytes;
  for (std::uint64_t line = begin; line < end; line += kLine) _mm_clflush(memory_at(line));
  _mm_sfence();
#endif
}

}  // namespace

Result<Outcome> run_on_cpu(const Operation& operation) {
  switch (operation.opcode) {
    case Opcode::noop:
    case Opcode::drain:
    case Opcode::translation_fetch: return Outcome{};
    case Opcode::memmove: copy(operation.destination, operation); return Outcome{};
    case Opcode::fill: fill(operation); return Outcome{};
    case Opcode::compare: return compare(operation);
    case Opcode::compare_pattern: return compare_pattern(operation);
    case Opcode::create_delta: return create_delta_record(operation);
    case Opcode::apply_delta: HEADRACE_TRY_STATUS(apply_delta_record(operation)); return Outcome{};
    case Opcode::dualcast:
      copy(operation.destination, operation);
      copy(operation.destination2, operation);
      return Outcome{};
    case Opcode::crc: return checksum(operation);
    case Opcode::copy_crc: {
      const Outcome found = checksum(operation);
      copy(operation.destination, operation);
      return found;
    }
    case Opcode::cache_flush: flush(operation); return Outcome{};
    default: break;
  }
  return fail(ErrorCode::invalid, "no core can do opcode {:#04x}; leave it to a device",
              static_cast<unsigned>(operation.opcode));
}

}  // namespace headrace::dsa
