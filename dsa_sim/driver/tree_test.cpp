// SPDX-License-Identifier: Apache-2.0
#include "dsa_sim/driver/tree.h"

#include <gtest/gtest.h>

namespace headrace::emulator {
namespace {

Devices open_served(DeviceSetup setup) {
  setup.queues = {{.size = 8, .threshold = 8}, {.shared = false, .size = 8}};
  for (QueueSetup& queue : setup.queues) queue.batches_allowed = setup.version > 0x100;
  return open_devices({setup}, 1).value();
}

std::string text_of(const Tree& tree, std::string path) {
  std::uint64_t at = Tree::kRoot;
  for (std::size_t end = 0; end != path.npos; path = path.substr(end + 1)) {
    end = path.find('/');
    const auto next = tree.child(at, std::string_view(path).substr(0, end));
    if (!next) return "-";
    at = *next;
    if (end == path.npos) break;
  }
  const TreeNode* node = tree.find(at);
  return node->text ? node->text() : "?";
}

TEST(Tree, Attributes_AreAsTheKernelPrintsThem) {
  const Devices devices = open_served(dsa2());
  const Tree tree(devices, 0640);
  const std::string zeros = "00000000,00000000,00000000,00000000,00000000,00000000,";
  for (const auto& [path, text] : std::vector<std::pair<std::string, std::string>>{
           {"version", "0x200"},
           {"gen_cap", "0x40915f0006"},
           {"op_cap", zeros + "00000000,0000000b"},
           {"state", "enabled"},
           {"pasid_enabled", "1"},
           {"numa_node", "0"},
           {"max_transfer_size", "2147483648"},
           {"max_batch_size", "1024"},
           {"engine0.0/group_id", "0"},
           {"wq0.0/mode", "shared"},
           {"wq0.0/size", "8"},
           {"wq0.0/threshold", "8"},
           {"wq0.0/op_config", zeros + "00000000,0000000b"},
           {"wq0.1/mode", "dedicated"},
           {"wq0.1/threshold", "0"},
           {"wq0.1/type", "user"},
           {"wq0.1/clients", "0"}}) {
    EXPECT_EQ(text_of(tree, "sys/bus/dsa/devices/dsa0/" + path), text + "\n") << path;
  }
  const Devices first = open_served(sapphire_rapids());
  const Tree old(first, 0640);
  EXPECT_EQ(text_of(old, "sys/bus/dsa/devices/dsa0/op_cap"), zeros + "00000000,00000009\n");
  EXPECT_EQ(text_of(old, "sys/bus/dsa/devices/dsa0/wq0.0/op_config"), "-");
}

TEST(Tree, FileOfADisabledQueue_IsGone) {
  const Devices devices = open_served(sapphire_rapids());
  const Tree tree(devices, 0640);
  const auto dsa = tree.child(*tree.child(Tree::kRoot, "dev"), "dsa").value();
  const auto queue = tree.child(dsa, "wq0.1");
  ASSERT_TRUE(queue);
  EXPECT_EQ(tree.find(*queue)->mode, 0640U);
  EXPECT_EQ(tree.find(*queue)->queue, 1U);
  devices[0]->disable(1);
  EXPECT_FALSE(tree.child(dsa, "wq0.1"));
  EXPECT_EQ(tree.find(*queue), nullptr);
  EXPECT_EQ(text_of(tree, "sys/bus/dsa/devices/dsa0/wq0.1/state"), "disabled\n");
  devices[0]->enable(1);
  EXPECT_EQ(tree.child(dsa, "wq0.1"), queue);
  EXPECT_EQ(tree.find(0), nullptr);
  EXPECT_EQ(tree.find(1000), nullptr);
  EXPECT_FALSE(tree.child(*queue, "x"));
}

}  // namespace
}  // namespace headrace::emulator
