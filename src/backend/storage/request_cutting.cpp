// SPDX-License-Identifier: Apache-2.0
#include "backend/storage/request_cutting.h"

#include <algorithm>

namespace headrace::storage {
namespace {

// An odd span up to this size is read with one bounced request. Up to three requests (head, middle,
// tail) would cost the device more than the copy of 64 KiB costs a core (about 5 us).
constexpr std::uint64_t kBounceWhole = 64 << 10;

std::uint64_t round_down(std::uint64_t n, std::uint64_t to) { return n & ~(to - 1); }
std::uint64_t round_up(std::uint64_t n, std::uint64_t to) { return round_down(n + to - 1, to); }

Step straight(std::uint64_t from, std::uint64_t to, bool direct) {
  return {.offset = from, .bytes = to - from, .from = from, .to = to, .direct = direct};
}

// Returns the whole blocks around [next, to), at most a bounce buffer's size.
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

// Returns the bytes of a straight request: whole units, at least one. The next request's memory has
// the same alignment as the first one's.
std::uint64_t straight_bytes(const FileSpan& span, std::uint64_t unit) {
  const std::uint64_t least = std::max<std::uint64_t>(unit, span.direct->memory);
  return std::max(round_down(span.request_bytes, least), least);
}

// The part of a read that consists of whole blocks of the file and whole pages of memory; may be
// empty. Nothing else writes to these pages meanwhile. This matters on kernels before 6.5: after a
// fork() a core that writes to a page gets a copy, and the device goes on writing to the old page
// (open(2)).
struct Middle {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  std::uint64_t unit = 1;
};
Middle middle_of(const FileSpan& span) {
  const std::uint64_t block = span.direct->offset;
  const std::uint64_t unit = std::max(span.memory_page, block);
  // The offset of an address in its page, minus the offset of its byte in the file.
  const std::uint64_t shift = (span.address - span.begin) & (span.memory_page - 1);
  if (shift % std::min(span.memory_page, block) != 0) return {};
  const std::uint64_t first = round_up(span.begin + shift, unit);
  const std::uint64_t last = round_down(span.end + shift, unit);
  if (first >= last || span.address_of(first - shift) % span.direct->memory != 0) return {};
  return {first - shift, last - shift, unit};
}

Step next_read(const FileSpan& span, std::uint64_t next) {
  const std::uint64_t block = span.direct->offset;
  const Middle middle = middle_of(span);
  if (next >= middle.last) return bounced(next, span.end, block);
  const bool odd = next < middle.first || middle.last != span.end;
  if (odd && span.end - next <= kBounceWhole) return bounced(next, span.end, block);
  if (next < middle.first) return bounced(next, middle.first, block);
  return straight(next, std::min(middle.last, next + straight_bytes(span, middle.unit)), true);
}

// A direct write must not overlap a page that is written through the page cache at the same time:
// the later write-back would undo it. So the direct middle consists of whole pages.
Step next_write(const FileSpan& span, std::uint64_t next) {
  const std::uint64_t page = std::max<std::uint64_t>(span.page, span.direct->offset);
  const std::uint64_t first = round_up(span.begin, page);
  const std::uint64_t last = round_down(span.end, page);
  if (first >= last || next >= last) return straight(next, span.end, false);
  if (next < first) return straight(next, first, false);
  if (span.address_of(next) % span.direct->memory != 0) return bounced(next, last, page);
  return straight(next, std::min(last, next + straight_bytes(span, page)), true);
}

}  // namespace

Step next_step(const FileSpan& span, std::uint64_t next) {
  if (!span.direct) {
    return straight(next, std::min(span.end, next + span.request_bytes), false);
  }
  return span.write ? next_write(span, next) : next_read(span, next);
}

}  // namespace headrace::storage
