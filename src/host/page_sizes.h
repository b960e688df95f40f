// SPDX-License-Identifier: Apache-2.0
// Page sizes of this host. Base pages have 4 KiB on x86, and 4, 16 or 64 KiB on aarch64, depending
// on the kernel's build. Transparent huge pages then have 2, 32 or 512 MiB. Thread-safe.
#pragma once

#include "headrace/units.h"
#include "host/files.h"

namespace headrace {

// The page size in which the kernel counts process memory (sysconf).
Bytes base_page();

// Size of a transparent huge page (transparent_hugepage/hpage_pmd_size, since Linux 4.9); 2 MiB
// where the kernel does not say.
Bytes huge_page();
Bytes huge_page(const HostFiles& files);

}  // namespace headrace
