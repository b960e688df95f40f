// SPDX-License-Identifier: Apache-2.0
// The mappings of this process, from /proc/self/maps and smaps. Thread-compatible.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "headrace/result.h"
#include "headrace/units.h"
#include "host/kernel.h"

namespace headrace {

// Identity of a file in stat(2) and maps.
struct FileId {
  std::uint64_t device = 0;  // as makedev(3)
  std::uint64_t inode = 0;
  friend bool operator==(const FileId&, const FileId&) = default;
};

// One mapping.
struct Vma {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  bool accessible = false;  // not PROT_NONE
  bool shared = false;
  FileId file;  // {}: anonymous
  // Only in smaps:
  Bytes present;          // pages in memory
  Bytes referenced;       // pages touched since clear_refs was last written
  bool huge = false;      // has, or shall have, huge pages (MADV_HUGEPAGE)
  bool hugetlb = false;   // from a hugetlb pool
  bool undumped = false;  // left out of core dumps (MADV_DONTDUMP)
  bool locked = false;    // mlock
};

// Builds mappings from lines of maps or smaps.
class VmaReader {
 public:
  explicit VmaReader(const std::function<void(const Vma&)>& each) : each_(each) {}
  void line(std::string_view line);
  // Ends the input.
  void finish();

 private:
  const std::function<void(const Vma&)>& each_;
  Vma vma_;
  bool any_ = false;
};

// Passes each mapping to `each`, by address. A mapping that changes meanwhile may be reported in
// its old or its new state. Errors: exhausted: no memory, also in `each`.
Status for_each_vma(Kernel& kernel, const std::function<void(const Vma&)>& each);
// The same with the fields of smaps, for which the kernel walks over all pages of the process.
Status for_each_vma_in_detail(Kernel& kernel, const std::function<void(const Vma&)>& each);

}  // namespace headrace
