// SPDX-License-Identifier: Apache-2.0
// A directory like /sys/bus/dsa/devices, with one device that has one usable queue.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "backend/dsa/dsa.h"

namespace headrace::test {

class SysfsTree {
 public:
  SysfsTree() {
    std::string name = std::filesystem::temp_directory_path() / "headrace-dsa-XXXXXX";
    if (mkdtemp(name.data()) != nullptr) root_ = name;
    for (const auto& [file, text] : std::initializer_list<std::pair<const char*, const char*>>{
             {"version", "0x100"},
             {"gen_cap", "0x40915f0107"},
             {"op_cap", "00000000,00000000,00000000,00000000,00000000,00000000,00000001,003f03ff"},
             {"state", "enabled"},
             {"pasid_enabled", "1"},
             {"engine0.0/group_id", "0"},
             {"engine0.1/group_id", "-1"},
             {"wq0.0/mode", "shared"},
             {"wq0.0/size", "128"},
             {"wq0.0/threshold", "100"},
             {"wq0.0/type", "user"},
             {"wq0.0/driver_name", "user"},
             {"wq0.0/state", "enabled"},
             {"wq0.0/ats_disable", "0"},
             {"wq0.0/max_transfer_size", "2147483648"},
             {"wq0.0/max_batch_size", "1024"}}) {
      write(std::string("dsa0/") + file, text);
    }
  }
  ~SysfsTree() { std::filesystem::remove_all(root_); }
  SysfsTree(const SysfsTree&) = delete;
  SysfsTree& operator=(const SysfsTree&) = delete;

  const std::filesystem::path& root() const { return root_; }
  dsa::Roots roots() const { return {.sysfs = root_, .dev = root_ / "dev"}; }
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text << '\n';
  }
  std::string read(const std::string& name) const {
    std::ifstream file(root_ / name);
    std::string line;
    std::getline(file, line);
    return line;
  }

 private:
  std::filesystem::path root_;
};

}  // namespace headrace::test
