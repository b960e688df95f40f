// SPDX-License-Identifier: Apache-2.0
// Builds sysfs and procfs trees in a temporary directory, for tests of discovery.
#pragma once

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "headrace/machine.h"

namespace headrace::test {

class FakeHost {
 public:
  FakeHost() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "headrace-host-XXXXXX").string();
    const char* made = mkdtemp(pattern.data());
    if (made == nullptr) std::abort();
    root_ = made;
    std::filesystem::create_directories(root_ / "sys");
    std::filesystem::create_directories(root_ / "proc");
  }
  ~FakeHost() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  FakeHost(const FakeHost&) = delete;
  FakeHost& operator=(const FakeHost&) = delete;

  // Writes one file; paths like "sys/devices/...", "proc/meminfo".
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << "\n";
  }
  // Makes a relative link from one path to another, as sysfs has.
  void link(const std::string& path, const std::string& target) {
    const auto from = root_ / path;
    std::filesystem::create_directories(from.parent_path());
    std::filesystem::create_directory_symlink(
        std::filesystem::relative(root_ / target, from.parent_path()), from);
  }
  std::filesystem::path at(const std::string& path) const { return root_ / path; }

  void add_node(unsigned id, const std::string& cpus, Bytes memory, const std::string& distances) {
    const std::string node = fmt::format("sys/devices/system/node/node{}/", id);
    write(node + "cpulist", cpus);
    write(node + "meminfo", fmt::format("Node {0} MemTotal:  {1} kB\nNode {0} MemFree: 1 kB", id,
                                        memory.value / 1024));
    write(node + "distance", distances);
  }
  void add_access(unsigned node, unsigned initiator, unsigned latency_ns, unsigned mib_per_second,
                  unsigned access_class = 1) {
    const std::string directory =
        fmt::format("sys/devices/system/node/node{}/access{}/initiators/", node, access_class);
    write(directory + "read_latency", std::to_string(latency_ns));
    write(directory + "write_latency", std::to_string(latency_ns));
    write(directory + "read_bandwidth", std::to_string(mib_per_second));
    write(directory + "write_bandwidth", std::to_string(mib_per_second));
    write(directory + fmt::format("node{}/present", initiator), "");
  }
  void set_total(Bytes memory) {
    write("proc/meminfo", fmt::format("MemTotal:       {} kB\nMemFree: 1 kB", memory.value / 1024));
  }
  void set_cpu_model(const std::string& model) {
    write("proc/cpuinfo", "processor\t: 0\nmodel name\t: " + model);
  }

  // Discovers nothing else: no environment, no storage by default.
  DiscoverOptions options() const {
    return {.sysfs = root_ / "sys",
            .procfs = root_ / "proc",
            .storage = {},
            .headrace_nodes = "",
            .memkind_hbw_nodes = ""};
  }

 private:
  std::filesystem::path root_;
};

}  // namespace headrace::test
