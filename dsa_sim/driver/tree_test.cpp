// SPDX-License-Identifier: Apache-2.0
#include "dsa_sim/driver/tree.h"

#include <fmt/core.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "dsa_sim/driver/driver_testing.h"

namespace headrace::emulator {
namespace {

const TreeNode* at(const Tree& tree, std::string_view path) {
  const std::optional<std::uint64_t> number = tree.path(path);
  return number ? tree.find(*number) : nullptr;
}

std::string text_of(const Tree& tree, std::string_view path) {
  const TreeNode* node = at(tree, path);
  return node != nullptr && node->attribute.show ? *node->attribute.show() : "";
}

TEST(Tree, HasTheFilesOfTheKernelWhereTheyBelong) {
  Bus bus = test::open_bus({QueueSetup{}, QueueSetup{}});
  const Tree tree(bus, 0640);
  EXPECT_EQ(text_of(tree, "sys/bus/dsa/devices/dsa0/version"), "0x100\n");
  EXPECT_EQ(text_of(tree, "sys/bus/dsa/devices/dsa0/wq0.1/state"), "enabled\n");
  EXPECT_EQ(text_of(tree, "sys/bus/dsa/devices/dsa0/wq0.7/state"), "disabled\n");
  EXPECT_EQ(text_of(tree, "sys/bus/dsa/devices/dsa0/engine0.0/group_id"), "0\n");
  EXPECT_EQ(text_of(tree, "sys/bus/dsa/devices/dsa0/group0.0/engines"), "engine0.0\n");
  for (const char* part : {"wq0.1", "engine0.3", "group0.2"}) {
    const TreeNode* link = at(tree, fmt::format("sys/bus/dsa/devices/{}", part));
    ASSERT_NE(link, nullptr) << part;
    EXPECT_EQ(link->target, fmt::format("dsa0/{}", part));
  }
  EXPECT_NE(at(tree, "sys/bus/dsa/drivers/idxd"), nullptr);
  EXPECT_EQ(at(tree, "sys/bus/dsa/devices/dsa1"), nullptr);
  EXPECT_EQ(at(tree, "control")->kind, TreeNode::Kind::control);
}

TEST(Tree, HasAFileForEachQueueOfTheSetUp) {
  Bus bus = test::open_bus({QueueSetup{}, QueueSetup{}});
  const Tree tree(bus, 0640);
  const TreeNode* queue = at(tree, "dev/dsa/wq0.1");
  ASSERT_NE(queue, nullptr);
  EXPECT_EQ(queue->kind, TreeNode::Kind::queue);
  EXPECT_EQ(queue->mode, 0640U);
  EXPECT_EQ(queue->queue, 1U);
  EXPECT_EQ(at(tree, "dev/dsa/wq0.2"), nullptr);
  EXPECT_EQ(at(tree, "dev/char/240:1")->target, "../dsa/wq0.1");
}

TEST(Tree, TheFileOfADisabledQueueIsGone) {
  Bus bus = test::open_bus({QueueSetup{}});
  const Tree tree(bus, 0600);
  const std::optional<std::uint64_t> number = tree.path("dev/dsa/wq0.0");
  ASSERT_TRUE(number);
  bus.devices()[0]->disable(0);
  EXPECT_EQ(at(tree, "dev/dsa/wq0.0"), nullptr);
  EXPECT_EQ(at(tree, "dev/char/240:0"), nullptr);
  EXPECT_EQ(tree.find(*number), nullptr);
  EXPECT_EQ(text_of(tree, "sys/bus/dsa/devices/dsa0/wq0.0/state"), "disabled\n");
  bus.devices()[0]->enable(0);
  EXPECT_EQ(tree.path("dev/dsa/wq0.0"), number);
}

// Walks all of it: every node is found by its name, and no name is there twice.
void walk(const Tree& tree, std::uint64_t number, std::size_t& nodes) {
  const TreeNode* node = tree.find(number);
  ASSERT_NE(node, nullptr);
  ++nodes;
  std::set<std::string> names;
  for (const std::uint64_t child : node->children) {
    const TreeNode* found = tree.find(child);
    ASSERT_NE(found, nullptr);
    EXPECT_FALSE(found->name.empty());
    EXPECT_TRUE(names.insert(found->name).second) << found->name;
    EXPECT_EQ(found->parent, number);
    EXPECT_EQ(tree.child(number, found->name), child);
    walk(tree, child, nodes);
  }
}

TEST(Tree, IsATree) {
  auto bus = Bus::open({sapphire_rapids(), dsa2(), dsa3()});
  ASSERT_TRUE(bus);
  const Tree tree(*bus, 0600);
  std::size_t nodes = 0;
  walk(tree, Tree::kRoot, nodes);
  EXPECT_GT(nodes, 600U);
  EXPECT_EQ(tree.find(0), nullptr);
  EXPECT_EQ(tree.find(nodes + 1), nullptr);
  EXPECT_FALSE(tree.path("dev/nothing/there"));
  EXPECT_FALSE(tree.child(*tree.path("control"), "x"));
}

}  // namespace
}  // namespace headrace::emulator
