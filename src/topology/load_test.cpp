// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <map>

#include "headrace/machine.h"
#include "tests/support/fake_host.h"
#include "topology/topology.h"

namespace headrace {
namespace {

using test::FakeHost;

TEST(LoadTest, EveryPresetLoadsAndEveryFigureHasASource) {
  EXPECT_EQ(presets(),
            (std::vector<std::string>{"ac922", "cxl-a1000", "epyc-9354p", "gh200", "grace", "h100",
                                      "h200", "one-node", "spr-hbm", "x86-pcie3", "xeon-max-9462",
                                      "xeon-max-cache", "xeon-max-quad", "xeon-max"}));
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
    for (const Link& link : machine->links) {
      EXPECT_FALSE(link.reason.empty());
      EXPECT_EQ(link.each_way.has_value(), !link.each_way_source.empty());
      EXPECT_EQ(link.both_ways.has_value(), !link.both_ways_source.empty());
      EXPECT_EQ(link.latency.has_value(), !link.latency_source.empty());
    }
    for (const CopyRate& rate : machine->copy_rates) {
      EXPECT_FALSE(rate.source.empty());
      EXPECT_TRUE(can_copy(*machine->find(rate.engine), *machine->find(rate.from),
                           *machine->find(rate.to)));
    }
  }
}

TEST(LoadTest, NothingIsPublishedFasterThanALinkItCrosses) {
  for (const std::string& name : presets()) {
    const auto machine = Machine::load(name);
    for (const CopyRate& rate : machine->copy_rates) {
      for (const Crossing& crossing : way_between(*machine, rate.from, rate.to)) {
        const Link& link = machine->links[crossing.link];
        if (!link.each_way) continue;
        EXPECT_LE(rate.bandwidth.value, link.each_way->value) << name << ": " << rate.source;
      }
    }
    for (const Node* gpu : machine->of_kind(NodeKind::gpu)) {
      EXPECT_FALSE(way_between(*machine, *gpu->gpu->host, gpu->id).empty()) << name;
    }
  }
}

TEST(LoadTest, PresetsWithGpusSayHowTheyAreReached) {
  const std::map<std::string, GpuParadigm> paradigms = {{"ac922", GpuParadigm::ats},
                                                        {"gh200", GpuParadigm::ats},
                                                        {"h100", GpuParadigm::managed},
                                                        {"h200", GpuParadigm::managed},
                                                        {"x86-pcie3", GpuParadigm::managed}};
  for (const auto& [name, paradigm] : paradigms) {
    const auto machine = Machine::load(name);
    ASSERT_TRUE(machine) << machine.error().message;
    const auto gpus = machine->of_kind(NodeKind::gpu);
    ASSERT_FALSE(gpus.empty());
    for (const Node* gpu : gpus) {
      ASSERT_TRUE(gpu->gpu && gpu->gpu->host);
      EXPECT_EQ(gpu->gpu->paradigm, paradigm);
      EXPECT_EQ(gpu->byte_addressable(), name == "gh200");
    }
  }
  const auto two = *Machine::load("gh200");
  EXPECT_EQ(two.rate(EngineId{2}, NodeId{0}, NodeId{2})->bandwidth.value, 377e9);
  EXPECT_EQ(two.rate(EngineId{2}, NodeId{2}, NodeId{0})->bandwidth.value, 297e9);
  EXPECT_EQ(two.rate(EngineId{2}, NodeId{1}, NodeId{2})->bandwidth.value, 133e9);
}

TEST(LoadTest, AFileLoadsAndSaysWhereItCameFrom) {
  FakeHost files;
  files.write("mine.json", Machine::load("one-node")->to_json());
  const auto machine = Machine::load(files.at("mine.json").string());
  ASSERT_TRUE(machine) << machine.error().message;
  EXPECT_EQ(machine->source, files.at("mine.json").string());
}

TEST(LoadTest, FilesOfProc_AreNotRead) {
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
  EXPECT_EQ(
      absent.error().message,
      "no file and no preset 'nope'; presets are ac922, cxl-a1000, epyc-9354p, gh200, grace, h100, "
      "h200, one-node, spr-hbm, x86-pcie3, xeon-max-9462, xeon-max-cache, xeon-max-quad, xeon-max");
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
