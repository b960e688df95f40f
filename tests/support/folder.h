// SPDX-License-Identifier: Apache-2.0
// A temporary folder with files, as another host or as a place of state.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

namespace headrace::test {

class TestFolder {
 public:
  TestFolder() {
    std::string pattern = std::filesystem::temp_directory_path() / "headrace-test-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) std::abort();
    root_ = pattern;
  }
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  const std::filesystem::path& root() const { return root_; }
  std::filesystem::path at(const std::filesystem::path& path) const { return root_ / path; }
  // Writes one file with a line end; paths like "sys/devices/...", "proc/meminfo".
  void write(const std::filesystem::path& path, std::string_view text) const {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << "\n";
  }

 private:
  std::filesystem::path root_;
};

}  // namespace headrace::test
