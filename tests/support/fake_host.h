// SPDX-License-Identifier: Apache-2.0
// Builds sysfs and procfs trees in a temporary directory, for tests of discovery.
#pragma once

#include <fmt/core.h>

#include <filesystem>
#include <string>

#include "headrace/machine.h"
#include "tests/support/folder.h"

namespace headrace::test {

class FakeHost : public TestFolder {
 public:
  FakeHost() {
    std::filesystem::create_directories(at("sys"));
    std::filesystem::create_directories(at("proc"));
  }

  // Makes a relative link from one path to another, as sysfs has.
  void link(const std::string& path, const std::string& target) {
    const auto from = at(path);
    std::filesystem::create_directories(from.parent_path());
    std::filesystem::create_directory_symlink(
        std::filesystem::relative(at(target), from.parent_path()), from);
  }

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
    return {.sysfs = at("sys"),
            .procfs = at("proc"),
            .storage = {},
            .headrace_nodes = "",
            .memkind_hbw_nodes = ""};
  }
};

}  // namespace headrace::test
