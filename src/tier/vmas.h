// SPDX-License-Identifier: Apache-2.0
// The mappings of this process, as /proc/self/maps and smaps tell them. Thread-compatible.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "headrace/result.h"
#include "headrace/units.h"
#include "tier/kernel.h"

namespace headrace {

// A file, as stat(2) and maps know it.
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
  // What only smaps tells.
  Bytes present;          // pages that are in memory
  Bytes referenced;       // pages touched since clear_refs was last written
  bool huge = false;      // has huge pages, or is to have them (MADV_HUGEPAGE)
  bool hugetlb = false;   // from a hugetlb pool
  bool undumped = false;  // left out of core dumps (MADV_DONTDUMP)
  bool locked = false;    // mlock
};

// Puts mappings together from lines.
class VmaReader {
 public:
  explicit VmaReader(const std::function<void(const Vma&)>& each) : each_(each) {}
  void line(std::string_view line);
  // No lines are left.
  void finish();

 private:
  const std::function<void(const Vma&)>& each_;
  Vma vma_;
  bool any_ = false;
};

// Each mapping, by address. Those that change meanwhile may be told as before or as after.
// exhausted: there is no memory, for `each` either.
Status for_each_vma(Kernel& kernel, const std::function<void(const Vma&)>& each);
// With what smaps says of each, which takes a walk over all pages of the process.
Status for_each_vma_in_detail(Kernel& kernel, const std::function<void(const Vma&)>& each);

}  // namespace headrace
