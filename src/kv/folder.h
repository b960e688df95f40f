// SPDX-License-Identifier: Apache-2.0
// A folder of KV blocks: two files, one of slots, one that lists what is in them, and a lock.
//
//   index   a superblock of 4 KiB, then a header for each slot
//   blocks  slots of a whole number of 4 KiB; a block lies in one, layer after layer
//
// A header has the key, a checksum of each fragment, a number that grows, and a checksum of its
// own. After the superblock nothing is ordered or flushed: a header that a crash has left beside
// the bytes of another block, or the other way round, does not fit its checksums, and the block is
// dropped when it is read. So losing power costs blocks, never right answers.
//
// Thread-compatible; different slots may be used by different threads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/file.h"
#include "headrace/kv/store.h"

namespace headrace::kv {

class Folder {
 public:
  // Makes it where it is not there; sizes it for `slots`, dropping what lay beyond. Errors as
  // Store::open().
  static Result<std::unique_ptr<Folder>> open(Mover& mover, const std::filesystem::path& path,
                                              const Geometry& geometry, std::uint32_t slots,
                                              NodeId memory);
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  // Room of one block in the file.
  static Bytes slot_bytes(const Geometry& geometry);

  struct Found {
    Key key;
    std::uint32_t slot = 0;
    std::uint64_t sequence = 0;
  };
  // What open() found, in the order in which it was written, each key once.
  const std::vector<Found>& found() const { return found_; }
  // The same for a caller that has taken them over.
  void forget_found() { found_ = {}; }

  const File& file() const { return *blocks_; }
  // io: its files were removed, and what is written to them is lost with this process.
  Status still_there() const;
  // Notes what `slot` is about to hold, with the checksums of `bytes`.
  void describe(std::uint32_t slot, const Key& key, std::span<const std::byte> bytes);
  // The copy that writes this down in the file. Requires: described, and not again before its end.
  MovePair header(std::uint32_t slot) const;
  // The key of the block that `slot` is said to hold, if any.
  std::optional<Key> listed(std::uint32_t slot) const;
  // Notes that it holds none, for header().
  void blank(std::uint32_t slot);
  // Whether this is layer `layer` of the block `key` in `slot`.
  bool fits(std::uint32_t slot, const Key& key, unsigned layer,
            std::span<const std::byte> bytes) const;

 private:
  struct Header;

  Folder(std::filesystem::path path, const Geometry& geometry, std::uint32_t slots);
  Status lock(const std::filesystem::path& path);
  Status open_files(Mover& mover, const std::filesystem::path& path);
  Status write_superblock(const std::filesystem::path& path) const;
  Status check_superblock(const std::filesystem::path& path) const;
  Status read_headers(Mover& mover);
  Header* at(std::uint32_t slot) const;
  std::uint64_t sum_of(std::uint32_t slot) const;

  const std::filesystem::path path_;
  const Geometry geometry_;
  const std::uint32_t slots_;
  const std::size_t header_bytes_;
  int lock_ = -1;
  std::unique_ptr<File> index_;
  std::unique_ptr<File> blocks_;
  std::vector<std::byte> headers_;
  std::unique_ptr<MemoryRange> headers_memory_;
  std::vector<Found> found_;
  std::atomic<std::uint64_t> sequence_{0};
};

}  // namespace headrace::kv
