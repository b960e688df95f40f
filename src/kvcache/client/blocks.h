// SPDX-License-Identifier: Apache-2.0
// Reads the blocks of a KV store that another process has opened with StoreOptions::shared, without
// a call to that process.
//
//   auto blocks = SharedBlocks::attach(geometry, memory, index);  // descriptors of Store::shared()
//   auto there = (*blocks)->read(keys, {&into, 1}, layout, positions);
//
// A block is copied, then compared with the index: if it left the memory meanwhile, it counts as
// not read. The store's process is never held up: nothing is pinned, and nothing is written to its
// memory. Bytes are those of store(); they are not verified, as for a local tier of memory.
//
// Thread-safe. In a child of fork(), calls fail as unsupported. Once the store is closed, they fail
// as cancelled. If its process was killed, they still return the right bytes: the caller notices
// that by its socket.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/fork.h"
#include "headrace/kvcache/store.h"
#include "headrace/mover.h"
#include "kvcache/shared/index.h"

namespace headrace::kvcache {

// Memory of blocks that lie there one after the other.
struct Staging {
  std::span<std::byte> bytes;
  std::vector<bool> which;  // the blocks to copy
};

class SharedBlocks {
 public:
  // Maps the memory; borrows the descriptors for the call. Errors: invalid: the files have another
  // format or geometry, or others may write to them.
  static Result<std::unique_ptr<SharedBlocks>> attach(const Geometry& geometry,
                                                      std::optional<int> memory, int index);
  ~SharedBlocks();
  SharedBlocks(const SharedBlocks&) = delete;
  SharedBlocks& operator=(const SharedBlocks&) = delete;

  const Geometry& geometry() const { return geometry_; }

  // Which of the blocks the store has now, in any tier.
  Result<std::vector<bool>> contains(std::span<const Key> keys) const;
  // Copies those of the blocks that are in the shared memory to the user's; returns which. `into`,
  // `layout`, `positions`: as for Store::load(), in memory of CPUs. Memory of a block that is not
  // read may have been overwritten. `mover`: copies from 8 MiB on, in pieces of at least 16 KiB;
  // nullptr: this thread copies all.
  // Errors: also those of Transfer::wait(), once nothing writes to the memory any more.
  Result<std::vector<bool>> read(std::span<const Key> keys, std::span<const Extent> into,
                                 Layout layout, std::span<const std::size_t> positions,
                                 Mover* mover = nullptr) const;

 private:
  SharedBlocks(Geometry geometry, MappedMemory memory, SharedIndexView index);
  Status check_open() const;

  const Origin origin_;
  const Geometry geometry_;
  MappedMemory memory_;  // empty: the store has no memory
  SharedIndexView index_;
};

// Copies blocks of `staging`, or to them, from the user's memory (as for Store::load(), in memory
// of CPUs). Errors: invalid: the memory does not fit the blocks.
enum class Direction : std::uint8_t { to_user, from_user };
Status copy_staged(const Geometry& geometry, const Staging& staging, Direction direction,
                   std::span<const Extent> user, Layout layout,
                   std::span<const std::size_t> positions);

}  // namespace headrace::kvcache
