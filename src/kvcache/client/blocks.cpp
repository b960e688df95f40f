// SPDX-License-Identifier: Apache-2.0
#include "kvcache/client/blocks.h"

#include <tuple>
#include <utility>

#include "core/fail.h"
#include "headrace/copy.h"
#include "kvcache/state/user_memory.h"

namespace headrace::kvcache {
namespace {

// Loads of this size end sooner when a Mover's engines copy them than in the calling thread, unless
// they are in small pieces: each costs the Mover as much time as copying about 4 KiB.
constexpr Bytes kLarge = 8_MiB, kLargePiece = 16_KiB;

Status check(const Geometry& geometry, std::span<const Extent> user, Layout layout,
             std::size_t blocks, std::span<const std::size_t> positions) {
  HEADRACE_TRY_STATUS(check_user(geometry, user, layout, blocks, positions));
  for (const Extent& each : user) {
    if (each.memory() == nullptr) {
      return fail(ErrorCode::unsupported,
                  "blocks of a server are copied to and from memory of CPUs; give such memory");
    }
  }
  return {};
}

// `parts`: the fragments of a block in the user's memory.
void copy(std::span<const Fragment> parts, std::byte* block, Direction direction) {
  for (const Fragment& part : parts) {
    std::byte* const user = part.user.memory();
    std::byte* const ours = block + part.in_block;
    const bool to_user = direction == Direction::to_user;
    copy_bytes(to_user ? user : ours, to_user ? ours : user, part.bytes.value);
  }
}

void fragments_of(const Geometry& geometry, std::span<const Extent> user, Layout layout,
                  std::span<const std::size_t> positions, std::size_t block,
                  std::vector<Fragment>& parts) {
  const UserBlock at = user_block(user, positions, block);
  parts.clear();
  fragments(geometry, at.extent, layout, at.position, 0, geometry.layers, parts);
}

// Returns once nothing writes to the user's memory any more.
Status moved(Mover& mover, std::span<const MovePair> pairs) {
  const Transfer move = mover.copy(pairs);
  const Result<MoveStats> outcome = move.wait();
  if (outcome) return {};
  move.cancel();
  while (!move.done()) std::ignore = move.wait();
  return Unexpected(outcome.error());
}

}  // namespace

Result<std::unique_ptr<SharedBlocks>> SharedBlocks::attach(const Geometry& geometry,
                                                           std::optional<int> memory, int index) {
  HEADRACE_TRY(auto view, SharedIndexView::map(index));
  const SharedSizes& sizes = view.sizes();
  MappedMemory mapped;
  if (memory) {
    HEADRACE_TRY(mapped, map_shared(*memory));
  }
  const bool fits = sizes.block_bytes == geometry.block().value &&
                    sizes.slot_bytes >= sizes.block_bytes &&
                    sizes.slots <= mapped.length().value / sizes.slot_bytes;
  if (!fits) {
    return fail(ErrorCode::invalid, "the server has blocks of {} bytes, not {}; use another server",
                sizes.block_bytes, geometry.block().value);
  }
  return std::unique_ptr<SharedBlocks>(
      new SharedBlocks(geometry, std::move(mapped), std::move(view)));
}

SharedBlocks::SharedBlocks(Geometry geometry, MappedMemory memory, SharedIndexView index)
    : geometry_(std::move(geometry)), memory_(std::move(memory)), index_(std::move(index)) {}

// A child of fork() does not have the mappings.
SharedBlocks::~SharedBlocks() {
  if (!origin_.here()) {
    memory_.release();
    index_.release();
  }
}

Status SharedBlocks::check_open() const {
  HEADRACE_TRY_STATUS(origin_.check("the connection to the server"));
  if (index_.closed()) return fail(ErrorCode::cancelled, "the server has ended; start it again");
  return {};
}

Result<std::vector<bool>> SharedBlocks::contains(std::span<const Key> keys) const {
  HEADRACE_TRY_STATUS(check_open());
  std::vector<bool> there(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) there[i] = index_.find(keys[i]).has_value();
  return there;
}

Result<std::vector<bool>> SharedBlocks::read(std::span<const Key> keys,
                                             std::span<const Extent> into, Layout layout,
                                             std::span<const std::size_t> positions,
                                             Mover* mover) const {
  HEADRACE_TRY_STATUS(check_open());
  std::vector<bool> there(keys.size());
  if (keys.empty()) return there;
  HEADRACE_TRY_STATUS(check(geometry_, into, layout, keys.size(), positions));
  HEADRACE_TRY_STATUS(check_apart(into, positions));
  const Bytes piece = layout == Layout::page_first ? geometry_.block() : geometry_.fragment();
  const MemoryRange blocks({memory_.memory(), memory_.length().value}, into.front().object->node());
  const bool large = mover != nullptr && geometry_.block() * keys.size() >= kLarge &&
                     piece >= kLargePiece && !mover->in_callback();  // a callback may not wait
  std::vector<std::optional<SharedIndexView::Found>> found(keys.size());
  std::vector<MovePair> pairs;
  std::vector<Fragment> parts;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    found[i] = index_.find(keys[i]);
    if (!found[i] || !found[i]->slot) continue;
    fragments_of(geometry_, into, layout, positions, i, parts);
    const std::uint64_t at = *found[i]->slot * index_.sizes().slot_bytes;
    if (!large) {
      copy(parts, memory_.memory() + at, Direction::to_user);
      there[i] = index_.unchanged(*found[i]);
      continue;
    }
    there[i] = true;
    for (const Fragment& part : parts) {
      add_pair(pairs, {.to = part.user, .from = {&blocks, at + part.in_block, part.bytes}});
    }
  }
  if (pairs.empty()) return there;
  HEADRACE_TRY_STATUS(moved(*mover, pairs));
  for (std::size_t i = 0; i < keys.size(); ++i) {
    there[i] = there[i] && index_.unchanged(*found[i]);
  }
  return there;
}

Status copy_staged(const Geometry& geometry, const Staging& staging, Direction direction,
                   std::span<const Extent> user, Layout layout,
                   std::span<const std::size_t> positions) {
  const std::size_t blocks = staging.which.size();
  const std::uint64_t block_bytes = geometry.block().value;
  if (blocks == 0) return {};
  if (blocks > staging.bytes.size() / block_bytes) {
    return fail(ErrorCode::invalid, "{} blocks of {} bytes in memory of {}", blocks, block_bytes,
                staging.bytes.size());
  }
  HEADRACE_TRY_STATUS(check(geometry, user, layout, blocks, positions));
  std::vector<Fragment> parts;
  for (std::size_t i = 0; i < blocks; ++i) {
    if (!staging.which[i]) continue;
    fragments_of(geometry, user, layout, positions, i, parts);
    copy(parts, staging.bytes.data() + i * block_bytes, direction);
  }
  return {};
}

}  // namespace headrace::kvcache
