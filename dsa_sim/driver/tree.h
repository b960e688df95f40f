// SPDX-License-Identifier: Apache-2.0
// What lies under the mount point: the kernel's files of DSA devices, and "control".
//
//   dev/dsa/wq0.0                    the queues
//   dev/char/240:0                   links to them, by major and minor number
//   sys/bus/dsa/devices/dsa0/...     attributes; wq0.0, engine0.0, group0.0 within, and links to
//   them sys/bus/dsa/drivers/{idxd,user}  empty: libaccel-config looks whether they are there
//   control                          see control.h
//
// The tree itself never changes, but the file of a queue is there only while the queue is enabled.
// Thread-safe.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dsa_sim/driver/attributes.h"
#include "dsa_sim/driver/bus.h"

namespace headrace::emulator {

struct TreeNode {
  enum class Kind : std::uint8_t { directory, attribute, link, queue, control };
  Kind kind = Kind::directory;
  std::string name;
  std::uint64_t parent = 0;
  mode_t mode = 0555;                   // permission bits
  std::vector<std::uint64_t> children;  // of a directory
  std::string target;                   // of a link
  Attribute attribute;
  // For a queue, and for what is there only with it.
  ServedDevice* device = nullptr;
  std::size_t queue = 0;
};

class Tree {
 public:
  static constexpr std::uint64_t kRoot = 1;

  // `queue_mode`: permission bits of the queues' files. The bus outlives the tree.
  Tree(Bus& bus, mode_t queue_mode);

  // By number; nothing: there is no such, or it is not there now.
  const TreeNode* find(std::uint64_t number) const;
  std::optional<std::uint64_t> child(std::uint64_t directory, std::string_view name) const;
  // "dev/dsa/wq0.0", from the root.
  std::optional<std::uint64_t> path(std::string_view text) const;

 private:
  std::uint64_t add(std::uint64_t parent, std::string name, TreeNode node = {});
  void add_link(std::uint64_t parent, const std::string& name, std::string target);
  void add_attributes(std::uint64_t directory, std::vector<Attribute> attributes);
  void add_device(Bus& bus, ServedDevice& device, std::uint64_t devices);
  void add_queue_file(Bus& bus, ServedDevice& device, std::size_t queue, mode_t mode,
                      std::uint64_t dsa, std::uint64_t numbers);

  std::vector<TreeNode> nodes_;  // by number; 0 is none
};

}  // namespace headrace::emulator
