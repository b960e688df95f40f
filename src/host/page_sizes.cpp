// SPDX-License-Identifier: Apache-2.0
#include "host/page_sizes.h"

#include <unistd.h>

#include <bit>

#include "host/nodes.h"

namespace headrace {

Bytes base_page() {
  static const Bytes size{static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE))};
  return size;
}

Bytes huge_page() {
  static const Bytes size = huge_page(HostFiles());
  return size;
}

Bytes huge_page(const HostFiles& files) {
  const auto bytes =
      number_after(files.text("sys/kernel/mm/transparent_hugepage/hpage_pmd_size"), "");
  return bytes && std::has_single_bit(*bytes) ? Bytes{*bytes} : 2_MiB;
}

}  // namespace headrace
