// SPDX-License-Identifier: Apache-2.0
#include "dsa_sim/driver/tree.h"

#include <fmt/format.h>

#include <type_traits>
#include <utility>

namespace headrace::emulator {
namespace {

// The kernel's print of a bitmap ("%*pb"): 32 bits at a time, the highest first.
std::string bitmap(const Opcodes& opcodes) {
  std::string text;
  for (std::size_t i = opcodes.words().size(); i-- > 0;) {
    const std::uint64_t word = opcodes.words()[i];
    text += fmt::format("{:08x},{:08x}{}", word >> 32, word & 0xffffffff, i > 0 ? "," : "");
  }
  return text;
}

}  // namespace

std::uint64_t Tree::add(std::uint64_t parent, std::string name, TreeNode node) {
  const std::uint64_t number = nodes_.size();
  node.name = std::move(name);
  node.parent = parent;
  nodes_.push_back(std::move(node));
  if (number != kRoot) nodes_[parent].children.push_back(number);
  return number;
}

// `value`: a constant, or a function that returns the value of now.
template <class Value>
void Tree::add_attribute(std::uint64_t directory, const char* name, Value value) {
  const auto text = [value = std::move(value)] {
    if constexpr (std::is_invocable_v<Value>) {
      return fmt::format("{}\n", value());
    } else {
      return fmt::format("{}\n", value);
    }
  };
  add(directory, name, {.kind = TreeNode::Kind::attribute, .mode = 0444, .text = text});
}

void Tree::add_queue(ServedDevice& device, std::size_t queue, std::uint64_t directory) {
  const QueueSetup& setup = device.setup().queues[queue];
  const auto state = [&device, queue] {
    return device.configured(queue) && !device.device().halted() ? "enabled" : "disabled";
  };
  add_attribute(directory, "state", state);
  add_attribute(directory, "mode", setup.shared ? "shared" : "dedicated");
  add_attribute(directory, "size", setup.size);
  add_attribute(directory, "threshold", setup.shared ? setup.threshold : 0);
  add_attribute(directory, "group_id", 0);
  add_attribute(directory, "block_on_fault", 0);
  add_attribute(directory, "type", "user");
  add_attribute(directory, "driver_name", "user");
  add_attribute(directory, "name", "headrace");
  add_attribute(directory, "max_transfer_size", setup.max_transfer);
  add_attribute(directory, "max_batch_size", kMaxBatch);
  add_attribute(directory, "clients", [&device, queue] { return device.clients(queue); });
  add_attribute(directory, "occupancy",
                [&device, queue] { return device.device().occupancy(queue); });
  // Sapphire Rapids has neither of them.
  if (device.setup().version == 0x100) return;
  add_attribute(directory, "ats_disable", 0);
  add_attribute(directory, "op_config", bitmap(setup.operations()));
}

void Tree::add_device(ServedDevice& device, std::uint64_t devices) {
  const DeviceSetup& setup = device.setup();
  const std::uint64_t own = add(devices, setup.name);
  add_attribute(own, "version", fmt::format("{:#x}", setup.version));
  add_attribute(own, "gen_cap", fmt::format("{:#x}", kGeneralCapabilities));
  add_attribute(own, "op_cap", bitmap(setup.queues.front().operations()));
  add_attribute(own, "numa_node", setup.numa_node);
  add_attribute(own, "max_transfer_size", kMaxTransfer);
  add_attribute(own, "max_batch_size", kMaxBatch);
  add_attribute(own, "pasid_enabled", 1);
  add_attribute(own, "state",
                [&device] { return device.device().halted() ? "halted" : "enabled"; });
  for (std::size_t i = 0; i < setup.queues.size(); ++i) {
    add_queue(device, i, add(own, queue_name(device, i)));
  }
  for (unsigned i = 0; i < setup.engines; ++i) {
    add_attribute(add(own, fmt::format("engine{}.{}", setup.name.substr(3), i)), "group_id", 0);
  }
}

Tree::Tree(const Devices& devices, mode_t queue_mode) : nodes_(1) {
  add(kRoot, "");
  const std::uint64_t dsa = add(add(kRoot, "dev"), "dsa");
  const std::uint64_t bus = add(add(add(add(kRoot, "sys"), "bus"), "dsa"), "devices");
  add(kRoot, "control", {.kind = TreeNode::Kind::control, .mode = 0600});
  for (const auto& device : devices) {
    add_device(*device, bus);
    for (std::size_t i = 0; i < device->setup().queues.size(); ++i) {
      add(dsa, queue_name(*device, i),
          {.kind = TreeNode::Kind::queue, .mode = queue_mode, .device = device.get(), .queue = i});
    }
  }
}

const TreeNode* Tree::find(std::uint64_t number) const {
  if (number == 0 || number >= nodes_.size()) return nullptr;
  const TreeNode& node = nodes_[number];
  const bool there = node.device == nullptr || node.device->configured(node.queue);
  return there ? &node : nullptr;
}

std::optional<std::uint64_t> Tree::child(std::uint64_t directory, std::string_view name) const {
  const TreeNode* node = find(directory);
  if (node == nullptr) return std::nullopt;
  for (const std::uint64_t number : node->children) {
    if (nodes_[number].name == name && find(number) != nullptr) return number;
  }
  return std::nullopt;
}

}  // namespace headrace::emulator
