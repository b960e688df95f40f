// SPDX-License-Identifier: Apache-2.0
#include "model/ceilings.h"

#include <gtest/gtest.h>

#include "model/model_testing.h"

namespace headrace {
namespace {

constexpr std::string_view kEvidence = R"("basis": "measured", "source": "here")";

Machine with_model(std::string model) {
  Machine machine = two_memories();
  machine.engines = {
      {.id = EngineId{0}, .kind = EngineKind::dsa, .name = "dsa0", .home = NodeId{0}}};
  machine.model = std::move(model);
  return machine;
}

std::string ceilings(std::string_view fields) {
  return "{\"ceilings\": [{" + std::string(fields) + ", " + std::string(kEvidence) + "}]}";
}

TEST(CeilingsTest, ModelOfAMachine_SurvivesItsJson) {
  const Machine machine =
      with_model(ceilings(R"("name": "m", "kind": "fabric", "bandwidth": 1e9)"));
  const std::string text = machine.to_json();
  const auto again = Machine::from_json(text);
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->to_json(), text);
  EXPECT_EQ(model_of(*again)->ceilings.at(0).name, "m");
  EXPECT_EQ(two_memories().to_json().find("\"model\""), std::string::npos);
}

TEST(CeilingsTest, AllFields_AreRead) {
  const auto model = model_of(with_model(R"({"ceilings": [{"name": "link", "kind": "link",
    "paths": [{"from": "0-1", "to": [1], "counts": "writes"}, {"engines": ["dsa0"]}],
    "bandwidth": [[0, 1e9], [0.5, 3e9]], "queue": [[0.5, 10], [1, 90]], "request_bytes": 64,
    "side_cache": true, "uncertainty": 0.1, "basis": "fitted", "source": "x",
    "fitted_to": ["y"]}],
    "latencies": [{"from": [0], "read_ns": 100, "basis": "assumed", "source": "z"}],
    "cores": [{"nodes": [0], "frequency_hz": 2e9, "lines_in_flight": {"random load": 16},
               "basis": "measured", "source": "w"}]})"));
  ASSERT_TRUE(model.has_value()) << model.error().message;
  const Ceiling& link = model->ceilings.at(0);
  EXPECT_EQ(link.paths.at(0).from, (std::vector{NodeId{0}, NodeId{1}}));
  EXPECT_EQ(link.paths[0].counts, Counts::writes);
  EXPECT_EQ(link.paths.at(1).engines, std::vector{EngineId{0}});
  EXPECT_EQ(link.bandwidth.at(0.25), 2e9);
  EXPECT_EQ(link.bandwidth.at(1), 3e9);
  EXPECT_EQ(link.queue.points.size(), 2u);
  EXPECT_TRUE(link.side_cache);
  EXPECT_EQ(link.evidence.fitted_to, std::vector<std::string>{"y"});
  EXPECT_EQ(model->latencies.at(0).read_ns, 100);
  EXPECT_EQ(cores_of(*model, NodeId{0})->lines_in_flight.at("random load"), 16);
  EXPECT_EQ(cores_of(*model, NodeId{1}), nullptr);
}

TEST(CeilingsTest, Each_MakesOneCeilingPerList) {
  const auto by_node = model_of(with_model(ceilings(
      R"("name": "memory {}", "kind": "controller", "each": [[0], [1]], "bandwidth": 1e9)")));
  ASSERT_TRUE(by_node.has_value()) << by_node.error().message;
  ASSERT_EQ(by_node->ceilings.size(), 2u);
  EXPECT_EQ(by_node->ceilings[1].name, "memory 1");
  EXPECT_EQ(by_node->ceilings[1].paths[0].to, std::vector{NodeId{1}});
  const auto by_cpu = model_of(with_model(ceilings(
      R"("name": "CCD {}", "kind": "cluster", "each": ["0-3", "4-7"], "bandwidth": 1e9)")));
  ASSERT_TRUE(by_cpu.has_value()) << by_cpu.error().message;
  EXPECT_EQ(by_cpu->ceilings[1].paths[0].cpus, (CpuSet{4, 5, 6, 7}));
}

TEST(CeilingsTest, Mistakes_HaveTheirLocation) {
  const std::string start = R"("name": "c", "kind": "fabric", )";
  for (const auto& [fields, message] : std::vector<std::pair<std::string, std::string>>{
           {R"("name": "c", "kind": "road", "bandwidth": 1)",
            "model.ceilings[0].kind: no ceiling kind 'road'; say core, cluster, fabric, "
            "controller, link, engine or device"},
           {start + R"("bandwidth": 0)",
            "model.ceilings[0].bandwidth: must be above 0 bytes per second"},
           {start + R"("bandwidth": -1)",
            "model.ceilings[0].bandwidth: must be a number from 0 up"},
           {R"("name": "c", "kind": "fabric")", "model.ceilings[0].bandwidth: is missing"},
           {start + R"("bandwidth": [[0.5, 1], [0.5, 2]])",
            "model.ceilings[0].bandwidth[1]: must begin with a larger number than the pair before"},
           {start + R"("bandwidth": 1, "to": [7])", "model.ceilings[0].to: no node 7"},
           {start + R"("bandwidth": 1, "to": [])",
            "model.ceilings[0].to: names none; leave it out for all"},
           {start + R"("bandwidth": 1, "cpus": "99")", "model.ceilings[0].cpus: no CPU 99"},
           {start + R"("bandwidth": 1, "engines": ["dsa9"])",
            "model.ceilings[0].engines[0]: no engine 'dsa9'"},
           {start + R"("bandwidth": 1, "queue": [[0.5, 10], [0.9, 9]])",
            "model.ceilings[0].queue: must have utilisations and delays above 0 that ascend"},
           {start + R"("bandwidth": 1, "each": [[0]])",
            "model.ceilings[0].name: must contain {} beside each"},
           {start + R"("bandwidth": 1, "uncertainty": 2)",
            "model.ceilings[0].uncertainty: must be a share from 0 to 0.9"}}) {
    const auto model = model_of(with_model(ceilings(fields)));
    ASSERT_FALSE(model.has_value()) << fields;
    EXPECT_EQ(model.error().message, message);
    EXPECT_EQ(model.error().code, ErrorCode::invalid);
  }
  const auto fitted =
      model_of(with_model(R"({"latencies": [{"read_ns": 1, "basis": "fitted", "source": "x"}]})"));
  ASSERT_FALSE(fitted.has_value());
  EXPECT_EQ(fitted.error().message,
            "model.latencies[0].fitted_to: must name the figures that a fitted constant was "
            "fitted to");
  const auto none = Machine::from_json(R"({"schema_version": 1, "name": "", "model": 3})");
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().message, "model: must be an object");
}

}  // namespace
}  // namespace headrace
