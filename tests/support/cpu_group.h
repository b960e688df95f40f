// SPDX-License-Identifier: Apache-2.0
// A control group of this test's own that limits CPU time, where root may make one.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "host/cgroups.h"

namespace headrace::test {

class CpuGroup {
 public:
  // Makes a group with the time of `cpus` CPUs.
  explicit CpuGroup(double cpus) {
    const bool version2 = std::filesystem::exists("/sys/fs/cgroup/cgroup.controllers");
    const std::filesystem::path parent = version2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu";
    const std::filesystem::path path = parent / ("headrace-test-" + std::to_string(::getpid()));
    std::error_code error;
    if (!std::filesystem::create_directory(path, error)) return;
    path_ = path;
    const std::string quota = std::to_string(static_cast<long>(cpus * 100'000));
    limited_ = put(path / (version2 ? "cpu.max" : "cpu.cfs_quota_us"), quota);
  }
  ~CpuGroup() {
    std::error_code error;
    if (!path_.empty()) std::filesystem::remove(path_, error);
  }
  CpuGroup(const CpuGroup&) = delete;
  CpuGroup& operator=(const CpuGroup&) = delete;

  // Moves this process into the group. False: there is none, or it is not permitted.
  bool enter() const { return limited_ && put(path_ / "cgroup.procs", "0"); }

 private:
  static bool put(const std::filesystem::path& file, const std::string& text) {
    std::ofstream stream(file);
    stream << text << std::flush;
    return stream.good();
  }

  std::filesystem::path path_;
  bool limited_ = false;
};

}  // namespace headrace::test
