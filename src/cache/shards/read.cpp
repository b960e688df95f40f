// SPDX-License-Identifier: Apache-2.0
// Reads: accesses to the blocks of a grid.
#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>

#include "cache/shards/shards.h"
#include "core/fail.h"

namespace headrace {
namespace {

// Blocks in flight for one read: enough to keep an SSD's queue busy, and few pins.
constexpr std::size_t kAhead = 16;
// How long until AccessOptions::stop is asked again.
constexpr Nanoseconds kTurn = std::chrono::milliseconds{50};

// The blocks of a range of an object, on a grid from the object's start.
class Grid {
 public:
  Grid(const Extent& range, Bytes block)
      : range_(range),
        block_(block.value),
        first_(range.offset / block.value),
        end_((range.end() + block.value - 1) / block.value) {}

  std::uint64_t blocks() const { return end_ - first_; }
  Extent block(std::uint64_t number) const {
    const std::uint64_t begin = (first_ + number) * block_;
    const std::uint64_t size = range_.object->size().value;
    return {range_.object, begin, Bytes{std::min(block_, size - begin)}};
  }
  // The bytes of the range that lie in this block.
  Extent part(std::uint64_t number) const {
    const Extent whole = block(number);
    const std::uint64_t begin = std::max(whole.offset, range_.offset);
    return {range_.object, begin, Bytes{std::min(whole.end(), range_.end()) - begin}};
  }

 private:
  const Extent range_;
  const std::uint64_t block_;
  const std::uint64_t first_;
  const std::uint64_t end_;
};

NodeId home_of(const Machine& machine) {
  for (const Node& node : machine.nodes) {
    if (node.byte_addressable()) return node.id;
  }
  return NodeId{0};
}

// Calls wait(most) in short turns until it is no time-out, the time is over, or the caller stops.
template <class Wait>
auto wait_in_turns(const ReadOptions& options, const Wait& wait) -> decltype(wait(Nanoseconds{})) {
  Nanoseconds left = options.timeout;
  for (;;) {
    const Nanoseconds most = std::min(left, kTurn);
    auto found = wait(most);
    left -= most;
    if (found || found.error().code != ErrorCode::timed_out || left <= Nanoseconds{0}) return found;
    const auto* const stop = options.access.stop;
    if (stop != nullptr && (*stop)()) return fail(ErrorCode::cancelled, "the read was stopped");
  }
}

// Without a copy in the cache.
Status read_source(Mover& mover, const Extent& from, std::span<std::byte> to,
                   const ReadOptions& options) {
  if (const std::byte* bytes = from.memory()) {
    std::memcpy(to.data(), bytes, to.size());
    return {};
  }
  const MemoryRange range(to, home_of(mover.machine()));
  const Transfer transfer = mover.copy(whole(range), from, {.priority = options.access.priority});
  auto moved = wait_in_turns(options, [&](Nanoseconds most) { return transfer.wait(most); });
  if (moved) return {};
  // Nothing writes to the caller's memory after the return.
  transfer.cancel();
  while (!transfer.done()) (void)transfer.wait(options.timeout);
  return Unexpected(std::move(moved).error());
}

}  // namespace

Status CacheShards::read(const Extent& from, std::span<std::byte> to, const ReadOptions& options) {
  if (!from.valid()) return fail(ErrorCode::invalid, "the extent is outside its object");
  if (to.size() != from.length.value) {
    return fail(ErrorCode::invalid, "{} bytes for an extent of {}", to.size(), from.length.value);
  }
  if (options.access.write) {
    return fail(ErrorCode::invalid, "read() with AccessOptions::write; use access() to write");
  }
  if (options.block == Bytes{0}) return fail(ErrorCode::invalid, "blocks of 0 bytes");
  if (to.empty()) return {};
  const Grid grid(from, options.block);
  const std::uint64_t count = grid.blocks();
  std::array<Extent, kAhead> extents;
  std::array<Block, kAhead> blocks;  // block i is at i % kAhead
  const std::size_t first = std::min<std::uint64_t>(kAhead, count);
  for (std::size_t i = 0; i < first; ++i) extents[i] = grid.block(i);
  access(std::span(extents).first(first), std::span(blocks).first(first), options.access);
  for (std::uint64_t i = 0; i < count; ++i) {
    Block& block = blocks[i % kAhead];
    const Extent part = grid.part(i);
    const auto into = to.subspan(part.offset - from.offset, part.length.value);
    const auto bytes = wait_in_turns(options, [&](Nanoseconds most) { return block.wait(most); });
    if (bytes) {
      const std::uint64_t begin = part.offset - block.extent().offset;
      std::memcpy(into.data(), bytes->data() + begin, into.size());
    } else if (const ErrorCode code = bytes.error().code;
               writable_ || code == ErrorCode::timed_out || code == ErrorCode::cancelled) {
      return Unexpected(bytes.error());
    } else {
      HEADRACE_TRY_STATUS(read_source(mover_, part, into, options));
    }
    block = {};
    if (i + kAhead < count) block = access(grid.block(i + kAhead), options.access);
  }
  return {};
}

}  // namespace headrace
