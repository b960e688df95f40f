// SPDX-License-Identifier: Apache-2.0
#include "host/page_sizes.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace headrace {
namespace {

namespace fs = std::filesystem;

TEST(PageSizes, ABasePageIsWhatTheKernelCounts) {
  EXPECT_EQ(base_page().value, static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)));
  EXPECT_EQ(huge_page().value % base_page().value, 0u);
}

// 64 KiB kernels of aarch64 report 512 MiB; the file is absent before 4.9 and without the option.
TEST(PageSizes, AHugePageIsWhatTheKernelSays) {
  const fs::path root =
      fs::temp_directory_path() / ("headrace_pages_" + std::to_string(::getpid()));
  const fs::path file = root / "sys/kernel/mm/transparent_hugepage/hpage_pmd_size";
  fs::create_directories(file.parent_path());
  EXPECT_EQ(huge_page(HostFiles(root)), 2_MiB);
  for (const auto& [text, bytes] : {std::pair{"536870912\n", 512_MiB},
                                    {"33554432\n", 32_MiB},
                                    {"no number\n", 2_MiB},
                                    {"0\n", 2_MiB}}) {
    std::ofstream(file) << text;
    EXPECT_EQ(huge_page(HostFiles(root)), bytes) << text;
  }
  fs::remove_all(root);
}

}  // namespace
}  // namespace headrace
