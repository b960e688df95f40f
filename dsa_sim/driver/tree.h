// SPDX-License-Identifier: Apache-2.0
// The files under the mount point: those of the kernel's driver that a program reads to find and
// use a queue, with its names and formats (Documentation/ABI/stable/sysfs-driver-dma-idxd), and
// "control".
//
//   dev/dsa/wq0.0                    the queues
//   sys/bus/dsa/devices/dsa0/...     attributes; those of wq0.0 and engine0.0 below
//   control                          commands to the emulator
//
// Thread-safe after construction.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dsa_sim/driver/driver.h"

namespace headrace::emulator {

struct TreeNode {
  enum class Kind : std::uint8_t { directory, attribute, queue, control };
  Kind kind = Kind::directory;
  mode_t mode = 0755;
  std::string name = {};
  std::uint64_t parent = 0;
  std::vector<std::uint64_t> children = {};
  std::function<std::string()> text = {};  // of an attribute
  ServedDevice* device = nullptr;          // of a queue
  std::size_t queue = 0;
};

class Tree {
 public:
  static constexpr std::uint64_t kRoot = 1;

  // `devices` outlive the tree.
  Tree(const Devices& devices, mode_t queue_mode);

  // The node of that number; nullptr: there is none, or it is the file of a disabled queue.
  const TreeNode* find(std::uint64_t number) const;
  std::optional<std::uint64_t> child(std::uint64_t directory, std::string_view name) const;

 private:
  std::uint64_t add(std::uint64_t parent, std::string name, TreeNode node = {});
  template <class Value>
  void add_attribute(std::uint64_t directory, const char* name, Value value);
  void add_device(ServedDevice& device, std::uint64_t devices);
  void add_queue(ServedDevice& device, std::size_t queue, std::uint64_t directory);

  std::vector<TreeNode> nodes_;
};

}  // namespace headrace::emulator
