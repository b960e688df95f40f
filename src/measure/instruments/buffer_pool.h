// SPDX-License-Identifier: Apache-2.0
// The memory of experiments: a pool of buffers by node and page size. Single-thread.
//
// Every round maps them anew, because the position of pages in caches and DRAM banks changes
// results by some per cent. The best of 20 runs of STREAM in one process differed by a quarter
// between processes.
#pragma once

#include <compare>
#include <cstdint>
#include <iosfwd>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "headrace/buffer.h"
#include "headrace/machine.h"
#include "headrace/result.h"

namespace headrace::instruments {

struct MemoryKey {
  NodeId node{0};
  PageSize pages = PageSize::transparent;
  // Further nodes: pages are interleaved over all.
  std::vector<NodeId> others = {};
  friend auto operator<=>(const MemoryKey&, const MemoryKey&) = default;
};

// Buffer size as a multiple of the caches. Walked in order, nothing of the last walk is left in a
// cache; chased at random, at most an eighth of the loads hit.
inline constexpr std::uint64_t kCachesPassed = 4;
inline constexpr std::uint64_t kCachesChased = 8;

// "base" or "huge", as in rows.
std::string_view page_word(PageSize pages);

// Whether this share of huge pages counts as all; decides where rows say "huge".
inline bool is_all_huge(double part) { return part > 1 - 1e-6; }

// `wanted`, or less: the largest share of a node for one buffer, such that the three of STREAM and
// the sentinels fit beside the system's memory. In whole huge pages where possible.
Bytes fitting(const Node& node, Bytes wanted);

// Rounded up to huge pages, except on kernels whose huge pages are hundreds of megabytes.
Bytes whole_huge_pages(Bytes bytes);

class BufferPool {
 public:
  explicit BufferPool(const Machine& machine) : machine_(machine) {}

  // The `index`-th buffer of `bytes` on a node, touched. The same request gets the same buffer
  // until clear(); a child of fork() does not have it. Enlarging a buffer loses its contents.
  // Transparent huge pages are whole, unless they are larger than the usual 2 MiB. Errors: those of
  // allocate().
  Result<std::span<std::byte>> get(const MemoryKey& key, std::size_t index, Bytes bytes);
  // A pointer that an experiment keeps while the buffer is mapped, so that it need not fill it
  // again; initially nullptr. Requires: this index of the buffer has no other user.
  void*& note(const MemoryKey& key, std::size_t index) { return all_[{key, index}].note; }
  // Frees all memory.
  void clear() { all_.clear(); }

  // Checks by a sample of pages that all buffers are on their nodes; the kernel may have moved
  // them. Errors: io: they are not; the message says where they are.
  Status check_residency() const;
  // The share of the memory that the kernel put in huge pages (smaps); 0 for base pages.
  static double huge_part(std::span<const std::byte> memory);
  // The same for several ranges in one pass over smaps, which takes longer the more memory the
  // process has.
  using Memories = std::vector<std::span<const std::byte>>;
  static std::vector<double> huge_parts(const Memories& memories, std::istream& smaps);
  // The share in all ranges together, in one pass.
  static double huge_part(const Memories& memories, std::istream& smaps);
  static double huge_part(const Memories& memories);
  // The least such share among buffers that shall have huge pages and were requested since
  // forget_uses(); nullopt: there were none.
  std::optional<double> huge_part_in_use() const;
  void forget_uses();

 private:
  struct PooledBuffer {
    std::unique_ptr<Buffer> buffer;
    void* note = nullptr;
    bool in_use = false;
  };

  const Machine& machine_;
  std::map<std::pair<MemoryKey, std::size_t>, PooledBuffer> all_;
};

}  // namespace headrace::instruments
