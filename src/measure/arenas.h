// The memory of experiments: one arena per node and page size, mapped afresh for every round, since
// where the pages of a mapping lie in the caches and the DRAM banks moves results by some per cent
// (the best of 20 runs of STREAM in one process differed by a quarter between processes).
// Single-thread.
#pragma once

#include <compare>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "headrace/buffer.h"
#include "headrace/machine.h"
#include "headrace/result.h"

namespace headrace {

struct MemoryKey {
  NodeId node{0};
  PageSize pages = PageSize::transparent;
  friend auto operator<=>(const MemoryKey&, const MemoryKey&) = default;
};

// "base" or "huge", as rows name them.
std::string_view page_word(PageSize pages);

// The largest part of a node that one buffer of an experiment takes, so that the three of a STREAM
// and the sentinels fit beside what the system needs; `wanted` where that is less. Whole huge pages
// where it can be.
Bytes fitting(const Node& node, Bytes wanted);

class Arenas {
 public:
  explicit Arenas(const Machine& machine) : machine_(machine) {}

  // The `index`-th piece of `bytes` on a node, touched, and the same until clear() for the same
  // request. The errors of allocate(). Enlarging a piece loses what was in it.
  Result<std::span<std::byte>> get(const MemoryKey& key, std::size_t index, Bytes bytes);
  // What an experiment keeps of a piece as long as it is mapped, so that it need not fill it again:
  // nullptr at first. Only for a piece whose index nobody else uses.
  void*& note(const MemoryKey& key, std::size_t index) { return pieces_[{key, index}].note; }
  // Gives all memory back.
  void clear() { pieces_.clear(); }

  // Whether all pieces are where they were asked for, by a sample of their pages: the kernel may
  // have moved them meanwhile. io: not, and where they are instead.
  Status check_residency() const;
  // Of a piece with huge pages, the part that the kernel really gave (smaps); 0 for base pages.
  static double huge_part(std::span<const std::byte> memory);

 private:
  struct ArenaPiece {
    std::unique_ptr<Buffer> buffer;
    void* note = nullptr;
  };

  const Machine& machine_;
  std::map<std::pair<MemoryKey, std::size_t>, ArenaPiece> pieces_;
};

}  // namespace headrace
