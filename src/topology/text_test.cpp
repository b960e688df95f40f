#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "headrace/machine.h"

namespace headrace {
namespace {

// The golden files are written anew by HEADRACE_UPDATE_GOLDEN=1.
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

}  // namespace
}  // namespace headrace
