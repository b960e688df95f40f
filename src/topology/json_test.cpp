// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "headrace/machine.h"
#include "headrace/random.h"
#include "tests/support/machines.h"

namespace headrace {
namespace {

// A machine with a value in every field.
Machine full_machine() {
  Machine machine = test::small_machine();
  machine.description = "with \"quotes\" and ü";
  machine.nodes[0].capacity_source = "node meminfo";
  machine.nodes[0].socket = 1;
  machine.nodes[1].access = {{.initiator = test::kDram,
                              .read_latency = Nanoseconds{120},
                              .read_bandwidth = BytesPerSecond{1.3e11},
                              .source = "HMAT in sysfs"}};
  machine.caches = {{3, 32_MiB, {0, 1}}};
  machine.copy_rates = {{.engine = test::kCpuA,
                         .from = test::kDram,
                         .to = test::kHbm,
                         .latency = Nanoseconds{700},
                         .bandwidth = {12.5e9},
                         .source = "bench copy",
                         .gather = GatherLimit{.bytes = 16_KiB, .count = 32}}};
  machine.links = {{.kind = LinkKind::pcie,
                    .a = {test::kDisk},
                    .b = {test::kDram, test::kHbm},
                    .reason = "PCIe 4.0 x4",
                    .each_way = BytesPerSecond{7.9e9},
                    .each_way_source = "sysfs",
                    .both_ways = BytesPerSecond{12e9},
                    .both_ways_source = "measured",
                    .latency = Nanoseconds{500},
                    .latency_source = "guessed"}};
  machine.warnings = {"one", "two"};
  machine.provenance = {{"kernel", "6.1"}, {"cpu", "?"}};
  return machine;
}

Error error_of(const std::string& text) {
  const auto machine = Machine::from_json(text);
  EXPECT_FALSE(machine) << text;
  return machine ? Error{} : machine.error();
}

std::string with(const std::string& pointer, const nlohmann::ordered_json& value) {
  auto document = nlohmann::ordered_json::parse(full_machine().to_json());
  document[nlohmann::ordered_json::json_pointer(pointer)] = value;
  return document.dump();
}

TEST(MachineJsonTest, ComesBackTheSame) {
  const std::string text = full_machine().to_json();
  const auto machine = Machine::from_json(text);
  ASSERT_TRUE(machine) << machine.error().message;
  EXPECT_EQ(machine->to_json(), text);
  EXPECT_EQ(machine->nodes[1].access[0].read_bandwidth, BytesPerSecond{1.3e11});
  EXPECT_EQ(machine->nodes[2].capacity, std::nullopt);
  EXPECT_EQ(machine->nodes[1].distances.at(test::kDram), 20u);
  EXPECT_EQ(machine->links[0].latency, Nanoseconds{500});
  EXPECT_EQ(machine->copy_rates[0].gather, full_machine().copy_rates[0].gather);
}

TEST(MachineJsonTest, FieldsStandInAFixedOrder) {
  const auto document = nlohmann::ordered_json::parse(full_machine().to_json());
  const auto keys = [](const nlohmann::ordered_json& object) {
    std::vector<std::string> names;
    for (const auto& [key, value] : object.items()) names.push_back(key);
    return names;
  };
  EXPECT_EQ(keys(document),
            (std::vector<std::string>{"schema_version", "name", "description", "source", "nodes",
                                      "caches", "engines", "links", "copy_rates", "warnings",
                                      "provenance"}));
  EXPECT_EQ(keys(document["nodes"][0]),
            (std::vector<std::string>{"id", "kind", "reason", "capacity_bytes", "capacity_source",
                                      "name", "cpus", "distances", "access", "path", "socket"}));
  EXPECT_EQ(keys(document["engines"][0]),
            (std::vector<std::string>{"id", "kind", "name", "home", "reason"}));
}

TEST(MachineJsonTest, Link_NeedsOnlyItsKindAndEnds) {
  const auto machine = Machine::from_json(
      R"({"schema_version": 1, "nodes": [{"id": 0, "kind": "dram"}, {"id": 1, "kind": "dram"}],
          "links": [{"kind": "upi", "a": [0], "b": [1]}]})");
  ASSERT_TRUE(machine) << machine.error().message;
  EXPECT_EQ(machine->links[0].each_way, std::nullopt);
  EXPECT_EQ(machine->links[0].both_ways, std::nullopt);
  EXPECT_EQ(machine->links[0].latency, std::nullopt);
  for (const auto& [pointer, value, message] :
       std::vector<std::tuple<std::string, nlohmann::ordered_json, std::string>>{
           {"/links/0/kind", "rope",
            "links[0].kind: no link kind 'rope'; say upi, xgmi, socket, mesh, pcie, cxl, nvlink or "
            "c2c"},
           {"/links/0/a", {77}, "links[0].a: no node 77"},
           {"/links/0/b", nlohmann::ordered_json::array(),
            "links[0].b: must name at least one node"},
           {"/links/0/each_way_bytes_per_second", 0,
            "links[0].each_way_bytes_per_second: must be above 0"}}) {
    EXPECT_EQ(error_of(with(pointer, value)).message, message);
  }
}

TEST(MachineJsonTest, AnEmptyMachineIsAMachine) {
  const auto machine = Machine::from_json(Machine{}.to_json());
  ASSERT_TRUE(machine) << machine.error().message;
  EXPECT_TRUE(machine->nodes.empty());
}

TEST(MachineJsonTest, UnknownFieldsArePassedOver) {
  EXPECT_TRUE(Machine::from_json(with("/future", {1, 2})));
  EXPECT_TRUE(Machine::from_json(with("/nodes/0/future", "x")));
}

TEST(MachineJsonTest, NodesAndCpusAreSorted) {
  const auto machine = Machine::from_json(
      R"({"schema_version": 1, "nodes": [{"id": 2, "kind": "cxl"},
                                         {"id": 0, "kind": "dram", "cpus": [1, 0, 1]}]})");
  ASSERT_TRUE(machine) << machine.error().message;
  EXPECT_EQ(machine->nodes[0].id, NodeId{0});
  EXPECT_EQ(machine->nodes[0].cpus, (CpuSet{0, 1}));
}

TEST(MachineJsonTest, Mistakes_HaveTheirLocation) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "no JSON at line 1, column 1; is the file cut off or edited by hand?"},
      {"[]", "the document: must be an object"},
      {"{}", "schema_version: is missing"},
      {with("/schema_version", 2),
       "schema_version: must be 1; write the file again with this version"},
      {with("/nodes", 3), "nodes: must be an array"},
      {with("/nodes/1", 3), "nodes[1]: must be an object"},
      {with("/nodes/1/id", -1), "nodes[1].id: must be a whole number from 0 to 4294967295"},
      {with("/nodes/1/id", 1.5), "nodes[1].id: must be a whole number from 0 to 4294967295"},
      {with("/nodes/1/id", nullptr), "nodes[1].id: is missing"},
      {with("/nodes/1/id", 1000), "nodes: node 1000 is there twice"},
      {with("/nodes/1/kind", "fast"),
       "nodes[1].kind: no node kind 'fast'; say dram, hbm, cxl, gpu or storage"},
      {with("/nodes/1/cpus", {0, "1"}), "nodes[1].cpus[1]: must be a whole number from 0 to 65535"},
      {with("/nodes/1/distances/x", 10), "nodes[1].distances.x: is no node id"},
      {with("/nodes/1/distances/x\ny", 10), "nodes[1].distances.x?y: is no node id"},
      {with("/nodes/1/distances/5", 10), "nodes[1].distances: no node 5"},
      {with("/nodes/1/access/0/initiator", 5), "nodes[1].access: no node 5"},
      {with("/nodes/1/access/0/read_bandwidth_bytes_per_second", -1),
       "nodes[1].access[0].read_bandwidth_bytes_per_second: must be a number from 0 up"},
      {with("/engines/1/id", 2), "engines[1].id: must be 1; engines are numbered from 0 in order"},
      {with("/engines/1/kind", "x"),
       "engines[1].kind: no engine kind 'x'; say cpu, ssd, dsa, gpu or migrate"},
      {with("/engines/1/home", 7), "engines[1].home: no node 7"},
      {with("/copy_rates/0/to", 7), "copy_rates[0].to: no node 7"},
      {with("/copy_rates/0/engine", 7), "copy_rates[0].engine: no engine 7"},
      {with("/copy_rates/0/bandwidth_bytes_per_second", 0),
       "copy_rates[0].bandwidth_bytes_per_second: must be above 0"},
      {with("/warnings", {1}), "warnings[0]: must be a string"},
      {with("/provenance/kernel", 6), "provenance.kernel: must be a string"},
      {"{\"schema_version\": 1e999}", "a number in the document is out of range"},
      {std::string(100000, '['), "nested too deeply for a machine"},
  };
  for (const auto& [text, message] : cases) {
    const Error error = error_of(text);
    EXPECT_EQ(error.code, ErrorCode::invalid);
    EXPECT_EQ(error.message, message);
  }
}

TEST(MachineJsonTest, ACutOffDocumentIsInvalidAtItsEnd) {
  const std::string text = full_machine().to_json();
  // The last two characters are "}\n": without only the newline the text is still complete.
  for (std::size_t length = 0; length + 2 < text.size(); ++length) {
    ASSERT_EQ(error_of(text.substr(0, length)).code, ErrorCode::invalid) << length;
  }
}

// Any text is a machine that can be written and read again, or invalid.
void expect_machine_or_invalid(const std::string& text) {
  const auto machine = Machine::from_json(text);
  if (!machine) {
    ASSERT_EQ(machine.error().code, ErrorCode::invalid);
    ASSERT_FALSE(machine.error().message.empty());
    ASSERT_EQ(machine.error().message.find('\n'), std::string::npos);
    return;
  }
  const std::string once = machine->to_json();
  const auto again = Machine::from_json(once);
  ASSERT_TRUE(again) << again.error().message;
  ASSERT_EQ(again->to_json(), once);
}

// HEADRACE_EVERY_MUTATION=1: twenty times as many, and each value at each place.
bool every_mutation() { return std::getenv("HEADRACE_EVERY_MUTATION") != nullptr; }

TEST(MachineJsonTest, AnyMutationIsAMachineOrInvalid) {
  const std::string text = full_machine().to_json();
  constexpr std::string_view kTokens = "{}[]\",:0123456789-eE.\\tfn \xff\x80";
  Random random(20261121);
  for (int round = every_mutation() ? 20'000 : 1'000; round > 0; --round) {
    std::string mutant = text;
    for (std::uint64_t edits = 1 + random.below(4); edits > 0 && !mutant.empty(); --edits) {
      const std::size_t at = random.below(mutant.size());
      const std::size_t span = random.below(std::min<std::size_t>(30, mutant.size() - at)) + 1;
      switch (random.below(5)) {
        case 0: mutant[at] = kTokens[random.below(kTokens.size())]; break;
        case 1: mutant.erase(at, span); break;
        case 2: mutant.insert(at, 1, kTokens[random.below(kTokens.size())]); break;
        case 3: mutant.insert(random.below(mutant.size()), mutant.substr(at, span)); break;
        default: mutant[at] = static_cast<char>(random.below(256)); break;
      }
    }
    ASSERT_NO_FATAL_FAILURE(expect_machine_or_invalid(mutant)) << mutant;
  }
}

// Mutations that keep the syntax: each replaces one value by another. A place has a third of the
// values, or all.
TEST(MachineJsonTest, AnyValueAnywhereIsAMachineOrInvalid) {
  const auto document = nlohmann::ordered_json::parse(full_machine().to_json());
  const auto flat = document.flatten();
  const std::vector<nlohmann::ordered_json> values = {
      nullptr, true,   -1,   0,   1,         1.5, 1e300, 18446744073709551615ull,
      "",      "dram", "\n", {1}, {{"a", 1}}};
  const std::size_t step = every_mutation() ? 1 : 3;
  std::size_t place = 0;
  for (const auto& [pointer, old] : flat.items()) {
    for (std::size_t i = place++ % step; i < values.size(); i += step) {
      auto mutant = document;
      mutant[nlohmann::ordered_json::json_pointer(pointer)] = values[i];
      ASSERT_NO_FATAL_FAILURE(expect_machine_or_invalid(mutant.dump())) << pointer << values[i];
    }
  }
}

}  // namespace
}  // namespace headrace
