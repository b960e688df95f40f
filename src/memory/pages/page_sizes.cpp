// SPDX-License-Identifier: Apache-2.0
#include "memory/pages/page_sizes.h"

#include <unistd.h>

#include <bit>
#include <charconv>
#include <string>

#include "core/text/files.h"

namespace headrace {

Bytes base_page() {
  static const Bytes size{static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE))};
  return size;
}

Bytes huge_page() {
  static const Bytes size = huge_page("/sys");
  return size;
}

Bytes huge_page(const std::filesystem::path& sysfs) {
  const std::string line = first_line(sysfs / "kernel/mm/transparent_hugepage/hpage_pmd_size");
  std::uint64_t bytes = 0;
  const auto read = std::from_chars(line.data(), line.data() + line.size(), bytes);
  return read.ec == std::errc{} && std::has_single_bit(bytes) ? Bytes{bytes} : 2_MiB;
}

}  // namespace headrace
