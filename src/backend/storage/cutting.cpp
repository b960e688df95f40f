// SPDX-License-Identifier: Apache-2.0
#include "backend/storage/cutting.h"

#include <algorithm>

namespace headrace::storage {
namespace {

// An odd span up to this size is read with one bounced request, because up to three (head, middle,
// tail) cost the device more than copying 64 KiB costs a core (about 5 us).
constexpr std::uint64_t kBounceWhole = 64 << 10;

std::uint64_t round_down(std::uint64_t n, std::uint64_t to) { return n & ~(to - 1); }
std::uint64_t round_up(std::uint64_t n, std::uint64_t to) { return round_down(n + to - 1, to); }

Step straight(std::uint64_t from, std::uint64_t to, bool direct) {
  return {.offset = from, .bytes = to - from, .from = from, .to = to, .direct = direct};
}

// Whole blocks around [next, to), as many as a bounce buffer holds.
Step bounced(std::uint64_t next, std::uint64_t to, std::uint64_t block) {
  const std::uint64_t offset = round_down(next, block);
  const std::uint64_t bytes = std::min(round_up(to, block) - offset, kBounceBytes);
  return {.offset = offset,
          .bytes = bytes,
          .from = next,
          .to = std::min(to, offset + bytes),
          .direct = true,
          .bounce = true};
}

bool memory_aligned(const FileSpan& span, std::uint64_t offset) {
  return span.address_of(offset) % span.direct->memory == 0;
}

Step next_read(const FileSpan& span, std::uint64_t next) {
  const std::uint64_t block = span.direct->offset;
  const std::uint64_t first = round_up(next, block);
  const std::uint64_t last = round_down(span.end, block);
  const bool odd = first != next || last != span.end;
  if (odd && span.end - next <= kBounceWhole) return bounced(next, span.end, block);
  if (first >= last || !memory_aligned(span, first)) return bounced(next, span.end, block);
  if (next != first) return bounced(next, first, block);
  return straight(next, std::min(last, next + span.request_bytes), true);
}

// A page of the cache that a direct write overlaps must not be written through the cache at the
// same time: the later write-back would undo it. So the direct middle consists of whole pages.
Step next_write(const FileSpan& span, std::uint64_t next) {
  const std::uint64_t page = std::max<std::uint64_t>(span.page, span.direct->offset);
  const std::uint64_t first = round_up(span.begin, page);
  const std::uint64_t last = round_down(span.end, page);
  if (first >= last || next >= last) return straight(next, span.end, false);
  if (next < first) return straight(next, first, false);
  if (!memory_aligned(span, next)) return bounced(next, last, page);
  return straight(next, std::min(last, next + span.request_bytes), true);
}

}  // namespace

Step next_step(const FileSpan& span, std::uint64_t next) {
  if (!span.direct) {
    return straight(next, std::min(span.end, next + span.request_bytes), false);
  }
  return span.write ? next_write(span, next) : next_read(span, next);
}

}  // namespace headrace::storage
