#include <gtest/gtest.h>

#include <set>

#include "headrace/machine.h"
#include "tests/support/fake_host.h"

namespace headrace {
namespace {

using test::FakeHost;

TEST(LoadTest, EveryPresetLoadsAndEveryFigureHasASource) {
  EXPECT_EQ(presets(), (std::vector<std::string>{"cxl-a1000", "one-node", "xeon-max"}));
  for (const std::string& name : presets()) {
    const auto machine = Machine::load(name);
    ASSERT_TRUE(machine) << machine.error().message;
    EXPECT_EQ(machine->name, name);
    EXPECT_EQ(machine->source, "preset " + name);
    for (const Node& node : machine->nodes) {
      EXPECT_FALSE(node.reason.empty());
      EXPECT_FALSE(node.capacity_source.empty());
      for (const auto& access : node.access) EXPECT_FALSE(access.source.empty());
    }
    for (const Engine& engine : machine->engines) EXPECT_FALSE(engine.reason.empty());
    for (const CopyRate& rate : machine->copy_rates) {
      EXPECT_FALSE(rate.source.empty());
      EXPECT_TRUE(can_copy(*machine->find(rate.engine), *machine->find(rate.from),
                           *machine->find(rate.to)));
    }
  }
}

TEST(LoadTest, XeonMaxIsTheThesisMachine) {
  const auto machine = Machine::load("xeon-max");
  ASSERT_TRUE(machine);
  EXPECT_EQ(machine->of_kind(NodeKind::dram).size(), 8u);
  const auto hbm = machine->of_kind(NodeKind::hbm);
  ASSERT_EQ(hbm.size(), 8u);
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(hbm[i]->id, NodeId{static_cast<std::uint32_t>(8 + i)});
    EXPECT_EQ(hbm[i]->socket, i / 4);
    EXPECT_EQ(hbm[i]->access.at(0).initiator, NodeId{static_cast<std::uint32_t>(i)});
    EXPECT_EQ(machine->engines[i].kind, EngineKind::dsa);
    EXPECT_EQ(machine->engines[i].home, NodeId{static_cast<std::uint32_t>(i)});
  }
  std::set<unsigned> cpus;
  for (const Node& node : machine->nodes) cpus.insert(node.cpus.begin(), node.cpus.end());
  EXPECT_EQ(cpus.size(), 96u);
}

TEST(LoadTest, AFileLoadsAndSaysWhereItCameFrom) {
  FakeHost files;
  files.write("mine.json", Machine::load("one-node")->to_json());
  const auto machine = Machine::load(files.at("mine.json").string());
  ASSERT_TRUE(machine) << machine.error().message;
  EXPECT_EQ(machine->source, files.at("mine.json").string());
}

TEST(LoadTest, WhatProcShowsIsNotRead) {
  const auto machine = Machine::load("/proc/self/status");
  ASSERT_FALSE(machine);
  EXPECT_EQ(machine.error().code, ErrorCode::invalid);
  EXPECT_NE(machine.error().message.find("is empty"), std::string::npos);
}

TEST(LoadTest, TheUsersDirectoryIsSearchedForNames) {
  FakeHost files;
  files.write("mine.json", Machine::load("one-node")->to_json());
  ASSERT_EQ(setenv("HEADRACE_MACHINES", files.at("").c_str(), 1), 0);
  const auto machine = Machine::load("mine");
  unsetenv("HEADRACE_MACHINES");
  EXPECT_TRUE(machine) << machine.error().message;
}

TEST(LoadTest, FailuresSayWhatToDo) {
  FakeHost files;
  const auto absent = Machine::load("nope");
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().code, ErrorCode::absent);
  EXPECT_EQ(absent.error().message,
            "no file and no preset 'nope'; presets are cxl-a1000, one-node, xeon-max");
  EXPECT_EQ(Machine::load("").error().code, ErrorCode::absent);
  EXPECT_EQ(Machine::load(files.at("").string()).error().code, ErrorCode::invalid);
  files.write("bad.json", "{\"schema_version\": 1,");
  const auto invalid = Machine::load(files.at("bad.json").string());
  ASSERT_FALSE(invalid);
  EXPECT_EQ(invalid.error().code, ErrorCode::invalid);
  EXPECT_TRUE(invalid.error().message.starts_with(files.at("bad.json").string() + ": no JSON at"))
      << invalid.error().message;
}

}  // namespace
}  // namespace headrace
