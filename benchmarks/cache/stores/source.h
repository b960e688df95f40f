// SPDX-License-Identifier: Apache-2.0
// The blocks that every implementation caches: in memory, or in a file, read past the page cache.
//
// Each word of eight bytes follows from its offset, so a reader can check it. Thread-safe once
// made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <vector>

#include "headrace/file.h"
#include "headrace/machine.h"
#include "headrace/object.h"
#include "headrace/result.h"

namespace headrace::cache_bench {

// The word at `offset`, a multiple of eight. No word is zero; no two words of a source are equal.
constexpr std::uint64_t word_at(std::uint64_t offset) {
  return (offset + 8) * 0x9E37'79B9'7F4A'7C15;  // odd, so a bijection
}

struct Place {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

// The stated node of memory that is copied from; it need not exist.
inline constexpr NodeId kSlowNode{1};

class Source {
 public:
  // Blocks of one size, a power of two of at least eight bytes, in memory.
  static Source in_memory(std::uint64_t blocks, std::uint64_t block);
  // Blocks of these lengths, one after the other, in a file of write_words(). Errors: those of
  // File::open; invalid: the file is too short. `writable`: for write().
  static Result<Source> in_file(const Machine& machine, const std::filesystem::path& path,
                                const std::vector<std::uint32_t>& lengths, bool writable = false);

  std::uint64_t blocks() const { return blocks_; }
  Place place(std::uint64_t block) const {
    return places_.empty() ? Place{block * length_, length_} : places_[block];
  }
  Extent extent(std::uint64_t block) const {
    const Place at = place(block);
    return {object_, at.offset, Bytes{at.length}};
  }
  const Object& object() const { return *object_; }
  // The block itself if a CPU can address it; null for a file.
  const std::byte* memory(std::uint64_t block) const {
    return file_ != nullptr ? nullptr : object_->memory() + place(block).offset;
  }
  // Whether reads of a file bypass the page cache.
  bool direct() const { return file_ != nullptr && file_->direct(); }
  // Copies the block to `to`, which has its length and, for a file, is aligned to 4096. False: it
  // could not be read whole.
  bool read(std::uint64_t block, std::byte* to) const;
  // The reverse of read(), for a file.
  bool write(std::uint64_t block, const std::byte* from) const;
  // Whether `bytes`, the block's bytes, have the right word at `within`, a multiple of eight.
  bool holds(std::uint64_t block, std::uint64_t within, const std::byte* bytes) const {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + within, sizeof word);
    return word == word_at(place(block).offset + within);
  }

 private:
  Source() = default;
  std::uint64_t blocks_ = 0;
  std::uint64_t length_ = 0;   // of each; 0 for blocks of several lengths
  std::vector<Place> places_;  // for blocks of several lengths
  std::vector<std::uint64_t> words_;
  std::unique_ptr<MemoryRange> range_;
  std::unique_ptr<File> file_;
  const Object* object_ = nullptr;
};

// Makes `path` a file of at least `size` bytes, a multiple of 4096, with the words of word_at(). An
// existing file is taken for the work of an earlier call and only made longer. Errors: io,
// exhausted, denied: by errno.
Status write_words(const std::filesystem::path& path, std::uint64_t size);

}  // namespace headrace::cache_bench
