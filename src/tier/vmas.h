// The mappings of this process, as /proc/self/smaps tells them. Thread-compatible.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "headrace/result.h"
#include "headrace/units.h"
#include "tier/kernel.h"

namespace headrace {

// One mapping.
struct Vma {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  bool shared = false;
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
Status for_each_vma(Kernel& kernel, const std::function<void(const Vma&)>& each);

}  // namespace headrace
