// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/kvcache/simulate.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "headrace/machine.h"

namespace headrace {
namespace {

using Json = nlohmann::ordered_json;

// An H200 with an SSD of 6 GB/s.
std::string with_ssd() {
  static const std::string document = [] {
    Json machine = Json::parse(Machine::load("h200")->to_json());
    machine["nodes"].push_back(
        {{"id", 1000}, {"kind", "storage"}, {"reason", "a test"}, {"name", "ssd"}, {"cpus", {}}});
    machine["nodes"].back()["cpus"] = Json::array();
    machine["engines"].push_back(
        {{"id", 2}, {"kind", "ssd"}, {"name", "ssd0"}, {"home", 1000}, {"reason", "a test"}});
    for (const auto& [from, to] : {std::pair(1000, 0), std::pair(0, 1000)}) {
      machine["copy_rates"].push_back({{"engine", 2},
                                       {"from", from},
                                       {"to", to},
                                       {"latency_ns", 80000},
                                       {"bandwidth_bytes_per_second", 6e9},
                                       {"source", "a test"}});
    }
    return machine.dump();
  }();
  return document;
}

// A prompt of 16 blocks of 256 KiB is stored; the same with 64 new tokens follows.
Json prompt(Bytes memory, Bytes ssd) {
  Json blocks = Json::array();
  for (int i = 0; i < 16; ++i) blocks.push_back(i);
  return {{"layers", 4},
          {"layer_token_bytes", 4096},
          {"block_tokens", 16},
          {"gpu", 2000},
          {"memory_bytes", memory.value},
          {"ssd_bytes", ssd.value},
          {"layer_token_seconds", 1e-7},
          {"requests",
           {{{"seconds", 0}, {"tokens", 256}, {"blocks", blocks}},
            {{"seconds", 0}, {"tokens", 320}, {"blocks", blocks}}}},
          {"untimed", 1}};
}

Json simulated(const Json& options) {
  const auto report = simulate_kvcache(with_ssd(), options.dump());
  EXPECT_TRUE(report.has_value()) << report.error().message;
  const Json document = report ? Json::parse(*report) : Json();
  EXPECT_EQ(document["failed"], 0) << document["last_error"];
  return document;
}

constexpr double kBytes = 4 << 20;
constexpr double kCompute = 4 * 64 * 1e-7;

TEST(SimulatedKvCache, LoadFromMemory_TakesTheTimeOfTheLink) {
  const Json report = simulated(prompt(64_MiB, 0_B));
  ASSERT_EQ(report["requests"].size(), 1U);
  const Json& request = report["requests"][0];
  EXPECT_EQ(request["found"], Json({16}));
  EXPECT_EQ(request["computed_tokens"], 64);
  const double link = kBytes / 55.2e9;
  EXPECT_NEAR(request["loading_seconds"], link, 0.5 * link);
  EXPECT_EQ(report["stored"], 16);
  EXPECT_EQ(report["refused"], 0);
}

// The promise of loads in the order of layers, which a defect planted in src/kvcache breaks
// (tools/mutations/kvcache.toml).
TEST(SimulatedKvCache, LoadLayerByLayer_HidesBehindComputing) {
  Json options = prompt(64_MiB, 0_B);
  const double layers = simulated(options)["requests"][0]["seconds"];
  options["layer_order"] = false;
  const Json first = simulated(options)["requests"][0];
  EXPECT_NEAR(first["seconds"], first["loading_seconds"].get<double>() + kCompute, 1e-6);
  // All but the first layer's share of the shorter of the two.
  EXPECT_LT(layers, first["seconds"].get<double>() - 0.5 * kCompute);
}

TEST(SimulatedKvCache, LoadFromSsd_TakesTheTimeOfTheSsd) {
  const Json request = simulated(prompt(0_B, 64_MiB))["requests"][0];
  EXPECT_EQ(request["found"], Json({16}));
  const double ssd = kBytes / 6e9;
  EXPECT_NEAR(request["loading_seconds"], ssd, 0.5 * ssd);
}

TEST(SimulatedKvCache, FullMemory_MovesBlocksToSsd) {
  const Json report = simulated(prompt(2_MiB, 64_MiB));
  const Json& request = report["requests"][0];
  ASSERT_EQ(report["tiers"].size(), 2U);
  EXPECT_EQ(request["found"][0].get<int>() + request["found"][1].get<int>(), 16);
  EXPECT_GE(request["found"][1], 8);
  EXPECT_EQ(report["tiers"][1]["name"], "ssd");
}

TEST(SimulatedKvCache, EqualOptions_GiveTheSameBytes) {
  const std::string options = prompt(2_MiB, 64_MiB).dump();
  EXPECT_EQ(*simulate_kvcache(with_ssd(), options), *simulate_kvcache(with_ssd(), options));
}

TEST(SimulatedKvCache, Run_LeavesNoFolder) {
  const auto count = [] {
    std::size_t found = 0;
    for (const auto& each :
         std::filesystem::directory_iterator(std::filesystem::temp_directory_path())) {
      found += each.path().filename().string().starts_with("headrace-simulated-");
    }
    return found;
  };
  const std::size_t before = count();
  simulated(prompt(0_B, 64_MiB));
  EXPECT_LE(count(), before);
}

// The report of a run that is stopped at the third look.
Json stopped(const Json& options) {
  int looks = 0;
  const auto report =
      simulate_kvcache(with_ssd(), options.dump(), {.stop = [&] { return ++looks > 2; }});
  EXPECT_TRUE(report.has_value()) << report.error().message;
  const Json read = Json::parse(report.value_or("{}"));
  EXPECT_TRUE(read.value("interrupted", false));
  return read;
}

TEST(SimulatedKvCache, Stop_EndsWithTheServedRequests) {
  Json options = prompt(64_MiB, 0_B);
  const Json last = options["requests"][1];
  for (int i = 0; i < 20000; ++i) options["requests"].push_back(last);
  const Json read = stopped(options);
  EXPECT_LT(read["requests"].size(), 20001U);
}

TEST(SimulatedKvCache, StopInALongRequest_EndsWithoutIt) {
  Json options = prompt(64_MiB, 0_B);
  options["requests"][1]["seconds"] = 9e8;
  const Json read = stopped(options);
  EXPECT_EQ(read["requests"].size(), 0U);
}

TEST(SimulatedKvCache, WrongOptions_AreNamed) {
  const auto refused = [](const Json& options) {
    const auto report = simulate_kvcache(with_ssd(), options.dump());
    return report ? "" : report.error().message;
  };
  EXPECT_EQ(refused(Json::array()), "options: no JSON object");
  EXPECT_EQ(refused({{"layers", 0}}),
            "options: \"layers\" is 0; give a whole number from 1 to 1024");
  Json options = prompt(64_MiB, 0_B);
  options["requests"][0]["tokens"] = 255;
  EXPECT_EQ(refused(options), "options: 16 blocks of 16 tokens in a request of 255");
  options = prompt(64_MiB, 0_B);
  options["layer_token_seconds"] = 1e300;
  EXPECT_NE(refused(options).find("s of computing"), std::string::npos);
  options = prompt(0_B, 0_B);
  EXPECT_NE(refused(options).find("tiers"), std::string::npos);
  options = prompt(64_MiB, 0_B);
  options["gpu"] = 77;
  EXPECT_NE(refused(options).find("77"), std::string::npos);
}

}  // namespace
}  // namespace headrace
