// SPDX-License-Identifier: Apache-2.0
// A folder of KV blocks: a file of slots, a file that lists their blocks, and a lock.
//
//   index   a superblock of 4 KiB, then a header for each slot
//   blocks  slots of a whole number of 4 KiB; a block lies in one, layer after layer
//   lock    empty
//
// A process that has the folder open holds flock() on `lock` and on `index`: on `lock` while the
// index is made or replaced, and on `index` since `lock` may have been removed.
//
// A header has the key, a checksum of each fragment, an increasing number, and its own checksum.
// After the superblock nothing is ordered, and nothing synced except by sync(). If a crash leaves
// a header beside the bytes of another block, the checksums do not fit and the block is dropped
// when it is read. So a power failure costs blocks, but never causes wrong answers.
//
// If blocks have any size, each part has a slot and a header of its own. All headers of a block
// have one increasing number, so parts of two writes are never taken together.
//
// Thread-compatible; different slots may be used by different threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/mutex.h"
#include "headrace/file.h"
#include "headrace/kvcache/store.h"

namespace headrace::kvcache {

class Folder {
 public:
  // Makes the folder if it is absent, locks it, and checks what it has. Drops no block. Errors: see
  // Store::open().
  static Result<std::unique_ptr<Folder>> claim(const std::filesystem::path& path,
                                               const Geometry& geometry, std::uint32_t slots,
                                               const TierOptions& rules);
  // Sizes the folder for its slots, dropping slots beyond, and reads the headers. Required before
  // the functions below. Errors: see Store::open().
  Status open(Mover& mover, NodeId memory);
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  // The size of a slot in the file.
  static Bytes slot_bytes(const Geometry& geometry);

  // The part of a block that a slot has: all of it, unless blocks have any size.
  struct Part {
    std::uint32_t number = 0;
    std::uint32_t block_bytes = 0;
    std::uint64_t sequence = 0;  // of Folders::next_sequence(); of two, the larger counts
  };
  struct Found {
    Key key;
    std::uint32_t slot = 0;
    Part part;
  };
  // The blocks that open() found, oldest first, each key once, all parts in order. Empty from then
  // on.
  std::vector<Found> take_found() { return std::exchange(found_, {}); }

  // Sorts by age. Keeps of each key the latest write, if all its parts are there.
  static void keep_latest(std::vector<Found>& found, const Geometry& geometry);

  // The largest number of a header that open() found.
  std::uint64_t last_found() const { return last_found_; }

  const File& file() const { return *blocks_; }
  // Errors: io: its files were removed, so writes are lost when this process ends; or were cut
  // since the last call, so blocks are lost, and mend() made them long again.
  Status still_there();
  std::uint64_t mends() const { return mends_.load(); }
  // Makes a file long again that was cut, so that all slots can be written. Blocks that were there
  // do not fit their checksums. Returns how many times this was necessary. Thread-safe.
  std::uint64_t mend() noexcept;
  // Makes all writes durable that have ended. Errors: io, from then on. Thread-safe.
  Status sync();
  // Records in memory that `slot` will hold this part of the block, with the checksums of `bytes`.
  void describe(std::uint32_t slot, const Key& key, const Part& part,
                std::span<const std::byte> bytes);
  // The copy that writes this record to the file. Requires: describe() was called, and is not
  // called again before the copy ends.
  MovePair header(std::uint32_t slot) const;
  // The key of the block that the header of `slot` names, if any.
  std::optional<Key> listed(std::uint32_t slot) const;
  // Records in memory that the slot holds no block, for header().
  void blank(std::uint32_t slot);
  // Whether `bytes` are this layer, or part, of the block `key` in `slot`, by checksum.
  bool fits(std::uint32_t slot, const Key& key, unsigned layer,
            std::span<const std::byte> bytes) const;
  // Whether the block `key` in `slot` needs no comparison (Verify). Requires: the slot is pinned.
  bool trusts(std::uint32_t slot, const Key& key) const;

 private:
  struct Header;

  Folder(std::filesystem::path path, const Geometry& geometry, std::uint32_t slots,
         const TierOptions& rules);
  // Opens the file and locks it, in place of `held`, which is released.
  Status lock(const std::filesystem::path& name, int& held) const;
  Status check_files();
  Status open_files(Mover& mover);
  Status write_superblock(const std::filesystem::path& path) const;
  // Sets `other` if the index is of a store, but damaged, or of another geometry or version.
  Status check_superblock(const std::filesystem::path& path, bool& other) const;
  static bool has_header(int file);
  Status read_headers(Mover& mover);
  bool valid(std::uint32_t slot) const;
  Header* at(std::uint32_t slot) const;
  std::uint64_t sum_of(std::uint32_t slot) const;

  const std::filesystem::path path_;
  const Geometry geometry_;
  const std::uint32_t slots_;
  const std::size_t header_bytes_;
  const bool discard_other_;
  const bool trusts_own_;
  std::vector<std::uint8_t> own_;                 // by slot: 1 if this process wrote its block
  std::atomic<std::uint64_t> uncut_{UINT64_MAX};  // bytes of `blocks` that were never cut
  std::atomic<bool> cut_{false};                  // since the last still_there()
  std::atomic<std::uint64_t> mends_{0};
  int lock_ = -1;
  int index_lock_ = -1;
  bool blank_ = false;  // check_files() found no index
  bool other_ = false;  // it found one to discard
  Mutex syncing_;
  int sync_error_ GUARDED_BY(syncing_) = 0;  // of the first sync() that failed
  std::unique_ptr<File> index_;
  std::unique_ptr<File> blocks_;
  std::vector<std::byte> headers_;
  std::unique_ptr<MemoryRange> headers_memory_;
  std::vector<Found> found_;
  std::uint64_t last_found_ = 0;
};

}  // namespace headrace::kvcache
