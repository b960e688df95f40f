// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "headrace/overview.h"

namespace headrace {
namespace {

// HEADRACE_UPDATE_GOLDEN=1 rewrites the golden files.
void expect_golden(const std::string& name, const std::string& text) {
  const auto path = std::filesystem::path(HEADRACE_SOURCE_DIR) / "src/topology/golden" / name;
  if (std::getenv("HEADRACE_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << text;
  std::ostringstream golden;
  golden << std::ifstream(path).rdbuf();
  EXPECT_EQ(text, golden.str()) << path;
}

TEST(TextTest, PresetsAsTrees) {
  for (const std::string& name : presets()) {
    expect_golden(name + ".txt", Machine::load(name)->to_text());
    expect_golden(name + ".overview.txt", overview(*Machine::load(name)));
  }
}

TEST(TextTest, CachesEnginesAndWarnings) {
  auto machine = Machine::load("one-node");
  ASSERT_TRUE(machine);
  machine->caches = {{1, 32_KiB, {0, 1}}, {1, 32_KiB, {2, 3}}, {3, 8_MiB, {0, 1, 2, 3}}};
  machine->warnings = {"something is odd"};
  machine->nodes.insert(machine->nodes.begin() + 1, {.id = NodeId{1},
                                                     .kind = NodeKind::cxl,
                                                     .reason = "a guess",
                                                     .name = "node 1",
                                                     .capacity = 512_MiB});
  expect_golden("caches.txt", machine->to_text());
  EXPECT_EQ(Machine{}.to_text(), "machine\n");
}

std::size_t lines_of(const Machine& machine) {
  return static_cast<std::size_t>(std::ranges::count(overview(machine), '\n'));
}

TEST(TextTest, NodesThatDifferInMoreThanNumbersHaveTheirOwnLines) {
  auto machine = *Machine::load("xeon-max");
  const std::size_t alike = lines_of(machine);
  machine.nodes[3].reason = "something else";
  EXPECT_EQ(lines_of(machine), alike + 4) << "the node, its cache and its two engines";
  machine.nodes[9].capacity = 8_GiB;
  EXPECT_EQ(lines_of(machine), alike + 5);
  machine.nodes[10].reason.clear();
  EXPECT_EQ(lines_of(machine), alike + 6);
}

TEST(TextTest, NumbersThatDifferAreARange) {
  auto machine = *Machine::load("xeon-max");
  for (std::size_t i = 0; i < machine.nodes.size(); ++i) {
    machine.nodes[i].reason = std::to_string(i % 2) + ".5 times 12345678901 of 3";
  }
  const std::string text = overview(machine);
  EXPECT_NE(text.find("0.5 to 1.5 times 12345678901 of 3"), std::string::npos) << text;
}

}  // namespace
}  // namespace headrace
