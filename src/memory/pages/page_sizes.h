// SPDX-License-Identifier: Apache-2.0
// How large pages are on this host: base pages have 4 KiB on x86, and on aarch64 what its kernel
// was built for, 4, 16 or 64 KiB; a transparent huge page has 2 MiB, with base pages of 16 KiB 32
// MiB, and with 64 KiB 512 MiB. Thread-safe.
#pragma once

#include <filesystem>

#include "headrace/units.h"

namespace headrace {

// What the kernel counts memory of a process in (sysconf).
Bytes base_page();

// A transparent huge page (transparent_hugepage/hpage_pmd_size, since Linux 4.9); 2 MiB where the
// kernel does not say.
Bytes huge_page();
Bytes huge_page(const std::filesystem::path& sysfs);

}  // namespace headrace
