// SPDX-License-Identifier: Apache-2.0
// Which blocks a store has, in memory that other processes map read-only (SharedIndex), and the
// look-up there (SharedIndexView). Neither waits for the other.
//
// A hash table with linear probing. The store's process changes it, under the lock of its table of
// blocks. Invariants:
//   1. A bucket's version is odd while its other fields change, and never returns to a value.
//   2. A block is `in memory` at a slot only while the slot has all its bytes: its bucket changes
//      before the slot is filled anew.
//   3. `moves` of the header is odd while a block may be between two buckets.
// A reader that copied bytes and finds the version unchanged has the bytes of that block (1, 2). A
// reader that found no block and `moves` unchanged and even missed none (3).
//
// SharedIndex is Thread-compatible; SharedIndexView is Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/own_files.h"
#include "headrace/kvcache/store.h"
#include "memory/memory.h"

namespace headrace::kvcache {

// The number of the format; a reader of another one is refused.
inline constexpr std::uint64_t kSharedFormat = 0x31726873'68726461;  // "adrhshr1"

// The sizes of the store's shared memory: slots one after the other, each with one block.
struct SharedSizes {
  std::uint64_t blocks = 0;  // at most, in all tiers
  std::uint64_t slots = 0;   // in the shared memory; 0: there is none
  std::uint64_t slot_bytes = 0;
  std::uint64_t block_bytes = 0;
};

struct SharedHeader {
  std::uint64_t format = 0;
  std::uint64_t buckets = 0;  // a power of two
  SharedSizes sizes;
  std::atomic<std::uint64_t> closed = 0;
  std::atomic<std::uint64_t> moves = 0;
};

struct SharedBucket {
  std::atomic<std::uint64_t> version;
  std::atomic<std::uint64_t> low;
  std::atomic<std::uint64_t> high;
  // kNoBlock, kElsewhere (in another tier), or the slot above these.
  std::atomic<std::uint64_t> place;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

class SharedIndex {
 public:
  // Errors: exhausted: too little memory or too few descriptors.
  static Result<std::unique_ptr<SharedIndex>> make(const SharedSizes& sizes);

  // Requires: no more blocks than SharedSizes::blocks.
  void set(const Key& key, std::optional<std::uint32_t> slot);
  void erase(const Key& key);
  // From now on readers find nothing.
  void close();
  int descriptor() const { return file_.get(); }

 private:
  SharedIndex(OwnDescriptor file, MappedMemory memory, std::uint64_t buckets);
  SharedHeader& header() { return *reinterpret_cast<SharedHeader*>(memory_.memory()); }
  SharedBucket& bucket(std::uint64_t index);
  // The bucket of the block, else the one that is free for it.
  std::uint64_t find(const Key& key);
  static void write(SharedBucket& bucket, const Key& key, std::uint64_t place);

  OwnDescriptor file_;
  MappedMemory memory_;
  const std::uint64_t mask_;
};

class SharedIndexView {
 public:
  // Maps the index read-only. Borrows the descriptor for the call. Errors: invalid: no index of
  // this format, or a file that its owner may cut.
  static Result<SharedIndexView> map(int descriptor);

  const SharedSizes& sizes() const { return header().sizes; }
  bool closed() const { return header().closed.load() != 0; }

  // A block that the store has; `slot`: where it is in the shared memory, if it is there.
  struct Found {
    std::optional<std::uint64_t> slot;
    std::uint64_t bucket = 0;
    std::uint64_t version = 0;
  };
  std::optional<Found> find(const Key& key) const;
  // Whether nothing has changed since find(): bytes copied from the slot in between are those of
  // the block.
  bool unchanged(const Found& found) const;
  // Leaves the mapping, which a child of fork() does not have.
  void release() { memory_.release(); }

 private:
  explicit SharedIndexView(MappedMemory memory) : memory_(std::move(memory)) {}
  const SharedHeader& header() const {
    return *reinterpret_cast<const SharedHeader*>(memory_.memory());
  }
  const SharedBucket& bucket(std::uint64_t index) const;
  // `whole`: no block was being moved.
  std::optional<Found> look(const Key& key, bool& whole) const;

  MappedMemory memory_;
};

}  // namespace headrace::kvcache
