// SPDX-License-Identifier: Apache-2.0
#include "host/page_sizes.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/support/folder.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

TEST(PageSizes, ABasePageIsWhatTheKernelCounts) {
  EXPECT_EQ(base_page().value, static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)));
  EXPECT_EQ(huge_page().value % base_page().value, 0u);
}

// 64 KiB kernels of aarch64 report 512 MiB; the file is absent before 4.9 and without the option.
TEST(PageSizes, AHugePageIsWhatTheKernelSays) {
  const test::TestFolder root;
  EXPECT_EQ(huge_page(HostFiles(root.root())), 2_MiB);
  for (const auto& [text, bytes] : {std::pair{"536870912", 512_MiB},
                                    {"33554432", 32_MiB},
                                    {"no number", 2_MiB},
                                    {"0", 2_MiB}}) {
    root.write("sys/kernel/mm/transparent_hugepage/hpage_pmd_size", text);
    EXPECT_EQ(huge_page(HostFiles(root.root())), bytes) << text;
  }
}

}  // namespace
}  // namespace headrace
