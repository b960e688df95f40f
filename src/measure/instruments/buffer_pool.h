// SPDX-License-Identifier: Apache-2.0
// The memory of experiments: a pool of buffers by node and page size, mapped anew for every round,
// since where the pages of a mapping lie in the caches and the DRAM banks moves results by some per
// cent (the best of 20 runs of STREAM in one process differed by a quarter between processes).
// Single-thread.
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
  // More nodes: pages in turn over all of them.
  std::vector<NodeId> others = {};
  friend auto operator<=>(const MemoryKey&, const MemoryKey&) = default;
};

// A buffer that is walked over in order is at least so many times what the caches hold, so that
// nothing of the last walk is found in them; one that is chased at random so many times, so that at
// most an eighth of the loads hit.
inline constexpr std::uint64_t kCachesPassed = 4;
inline constexpr std::uint64_t kCachesChased = 8;

// "base" or "huge", as rows name them.
std::string_view page_word(PageSize pages);

// Whether this part in huge pages is all of it. Where rows say "huge", this decides.
inline bool is_all_huge(double part) { return part > 1 - 1e-6; }

// The largest part of a node that one buffer of an experiment takes, so that the three of a STREAM
// and the sentinels fit in addition to what the system needs; `wanted` where that is less. Whole
// huge pages where it can be.
Bytes fitting(const Node& node, Bytes wanted);

// Rounded up to huge pages, but for kernels whose huge pages are hundreds of megabytes.
Bytes whole_huge_pages(Bytes bytes);

class BufferPool {
 public:
  explicit BufferPool(const Machine& machine) : machine_(machine) {}

  // The `index`-th buffer of `bytes` on a node, touched, and the same until clear() for the same
  // request; a child made by fork() does not have it. The errors of allocate(). Enlarging a buffer
  // loses what was in it. Of transparent huge pages it has whole ones, unless these are larger than
  // usual (2 MiB).
  Result<std::span<std::byte>> get(const MemoryKey& key, std::size_t index, Bytes bytes);
  // What an experiment keeps of a buffer as long as it is mapped, so that it need not fill it
  // again: nullptr at first. Only for a buffer whose index nobody else uses.
  void*& note(const MemoryKey& key, std::size_t index) { return all_[{key, index}].note; }
  // Gives all memory back.
  void clear() { all_.clear(); }

  // Whether all buffers are where they were asked for, by a sample of their pages: the kernel may
  // have moved them meanwhile. io: not, and where they are instead.
  Status check_residency() const;
  // The part of some memory that the kernel really gave in huge pages (smaps); 0 for base pages.
  static double huge_part(std::span<const std::byte> memory);
  // The same of several, in one pass over smaps, which takes the kernel longer the more memory the
  // process has.
  using Memories = std::vector<std::span<const std::byte>>;
  static std::vector<double> huge_parts(const Memories& memories, std::istream& smaps);
  // The part of all of them together, in one pass.
  static double huge_part(const Memories& memories, std::istream& smaps);
  static double huge_part(const Memories& memories);
  // The least such part of the buffers that were to be in huge pages and were asked for since
  // forget_uses(); nothing where there was none.
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
