// SPDX-License-Identifier: Apache-2.0
#include "dsa_sim/driver/tree.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <utility>

namespace headrace::emulator {

std::uint64_t Tree::add(std::uint64_t parent, std::string name, TreeNode node) {
  const std::uint64_t number = nodes_.size();
  node.name = std::move(name);
  node.parent = parent;
  nodes_.push_back(std::move(node));
  if (number != kRoot) nodes_[parent].children.push_back(number);
  return number;
}

void Tree::add_link(std::uint64_t parent, const std::string& name, std::string target) {
  add(parent, name, {.kind = TreeNode::Kind::link, .mode = 0777, .target = std::move(target)});
}

void Tree::add_attributes(std::uint64_t directory, std::vector<Attribute> attributes) {
  for (Attribute& attribute : attributes) {
    const std::string name = attribute.name;
    const mode_t mode = attribute.mode;
    add(directory, name,
        {.kind = TreeNode::Kind::attribute, .mode = mode, .attribute = std::move(attribute)});
  }
}

// Queues, engines and groups lie in their device's directory, and the bus has links to them. That
// of the device itself is a link too in sysfs; here it is the directory, so that it can be mounted
// anywhere.
void Tree::add_device(Bus& bus, ServedDevice& device, std::uint64_t devices) {
  const DeviceSetup& setup = device.setup();
  const std::uint64_t own = add(devices, setup.name);
  add_attributes(own, device_attributes(device));
  const auto add_part = [&](const char* kind, std::size_t number,
                            std::vector<Attribute> attributes) {
    const std::string name = fmt::format("{}{}.{}", kind, device.number(), number);
    add_attributes(add(own, name), std::move(attributes));
    add_link(devices, name, fmt::format("{}/{}", setup.name, name));
  };
  for (std::size_t i = 0; i < setup.max_queues; ++i) {
    add_part("wq", i, queue_attributes(bus, device, i));
  }
  for (std::size_t i = 0; i < setup.max_engines; ++i) {
    add_part("engine", i, engine_attributes(device, i));
  }
  for (std::size_t i = 0; i < setup.max_groups; ++i) {
    add_part("group", i, group_attributes(device, i));
  }
}

void Tree::add_queue_file(Bus& bus, ServedDevice& device, std::size_t queue, mode_t mode,
                          std::uint64_t dsa, std::uint64_t numbers) {
  const std::string name = fmt::format("wq{}.{}", device.number(), queue);
  const unsigned minor = minor_of(bus, device, queue);
  add(dsa, name, {.kind = TreeNode::Kind::queue, .mode = mode, .device = &device, .queue = queue});
  add(numbers, fmt::format("{}:{}", kMajor, minor),
      {.kind = TreeNode::Kind::link,
       .mode = 0777,
       .target = fmt::format("../dsa/{}", name),
       .device = &device,
       .queue = queue});
}

Tree::Tree(Bus& bus, mode_t queue_mode) : nodes_(1) {
  add(kRoot, "");
  const std::uint64_t dev = add(kRoot, "dev");
  const std::uint64_t dsa = add(dev, "dsa");
  const std::uint64_t numbers = add(dev, "char");
  const std::uint64_t of_bus = add(add(add(kRoot, "sys"), "bus"), "dsa");
  const std::uint64_t devices = add(of_bus, "devices");
  const std::uint64_t drivers = add(of_bus, "drivers");
  add(drivers, "idxd");
  add(drivers, "user");
  add(kRoot, "control", {.kind = TreeNode::Kind::control, .mode = 0600});
  for (const auto& device : bus.devices()) {
    add_device(bus, *device, devices);
    for (std::size_t i = 0; i < device->setup().queues.size(); ++i) {
      add_queue_file(bus, *device, i, queue_mode, dsa, numbers);
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

std::optional<std::uint64_t> Tree::path(std::string_view text) const {
  std::uint64_t at = kRoot;
  while (!text.empty()) {
    const std::size_t end = text.find('/');
    const std::optional<std::uint64_t> next = child(at, text.substr(0, end));
    if (!next) return std::nullopt;
    at = *next;
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
  }
  return at;
}

}  // namespace headrace::emulator
