// SPDX-License-Identifier: Apache-2.0
#include "headrace/profile.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "headrace/version.h"

namespace headrace {
namespace {

Row row(std::string experiment, std::uint64_t node, std::vector<double> samples) {
  Row made{.experiment = std::move(experiment),
           .parameters = {{"memory_node", node}, {"mix", "read"}},
           .unit = "B/s",
           .samples = std::move(samples)};
  made.value = summarize(made.samples);
  return made;
}

Profile small_profile() {
  Profile profile;
  profile.machine.name = "here";
  profile.machine.nodes.push_back({.id = NodeId{0}, .kind = NodeKind::dram});
  profile.rows.push_back(row("bandwidth", 0, {1e9, 1.5e9, 2e9}));
  profile.rows.back().details = {{"bus", 3e9}};
  profile.rows.back().words = {{"kernel", "avx2 x 2 streams"}};
  profile.rows.back().flags = {"noisy"};
  profile.rows.back().stands_for = {"cpu_node=1 memory_node=1"};
  profile.rows.back().cpus = "0-3,8";
  profile.rows.push_back({.experiment = "latency", .unit = "ns", .reason = "no such node"});
  profile.rows.push_back({.experiment = "latency",
                          .unit = "ns",
                          .basis = Basis::published,
                          .source = "Doe 2024, table 1"});
  profile.rows.back().value = {.median = 97, .min = 97, .max = 97, .interval = {97, 97}};
  profile.conditions = {{"date", "2026-11-21"}};
  return profile;
}

// Older profiles write it like this; a part of a machine is still a cluster.
TEST(ProfileTest, CpusThatShareACacheWereACluster) {
  Profile old = small_profile();
  old.rows = {{.experiment = "core_to_core", .parameters = {{"apart", "cluster"}}},
              {.experiment = "bandwidth", .parameters = {{"on", "cluster"}}}};
  const auto read = Profile::from_json(old.to_json());
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->rows[0].word("apart"), "cache");
  EXPECT_EQ(read->rows[1].word("on"), "cluster");
}

TEST(ProfileTest, RoundTripKeepsEverything) {
  const Profile profile = small_profile();
  const auto back = Profile::from_json(profile.to_json());
  ASSERT_TRUE(back.has_value()) << back.error().message;
  EXPECT_EQ(back->to_json(), profile.to_json());
  EXPECT_EQ(back->rows[0].value->median, 1.5e9);
  EXPECT_EQ(back->rows[0].value->runs, 3u);
  EXPECT_FALSE(back->rows[1].value);
  EXPECT_EQ(back->rows[1].reason, "no such node");
  EXPECT_EQ(back->rows[0].basis, Basis::measured);
  EXPECT_EQ(back->rows[0].words, profile.rows[0].words);
  EXPECT_EQ(back->rows[0].stands_for, profile.rows[0].stands_for);
  EXPECT_EQ(back->rows[0].cpus, profile.rows[0].cpus);
  EXPECT_EQ(back->rows[2].source, "Doe 2024, table 1");
  EXPECT_TRUE(back->published());
  EXPECT_EQ(back->conditions.at("date"), "2026-11-21");
}

TEST(ProfileTest, ARowSaysWhatItsIntervalIs) {
  Profile profile = small_profile();
  profile.rows.push_back(row("copy", 0, {1, 2, 3, 4, 5, 6}));
  profile.rows.push_back(row("copy", 1, {1, 2, 3, 4, 5, 6}));
  profile.rows.back().launches = {1, 1, 1, 1, 1, 1};
  profile.rows.back().value = summarize(profile.rows.back().samples, profile.rows.back().launches);
  const std::string text = profile.to_json();
  const auto back = Profile::from_json(text);
  ASSERT_TRUE(back.has_value()) << back.error().message;
  const char* words[] = {"range of 3", "", "unknown", "95 %", "95 % of 6 launches"};
  for (std::size_t i : {0u, 2u, 3u, 4u}) {
    EXPECT_EQ(interval_words(*back->rows[i].value), words[i]);
    EXPECT_NE(text.find(fmt::format(R"("interval": "{}")", words[i])), std::string::npos);
  }
  EXPECT_EQ(back->rows[4].launches, std::vector<std::size_t>(6, 1));
  EXPECT_EQ(back->rows[4].value->launches, 6u);
}

// Before this field, three samples also had an "interval": its meaning is computed again. A meaning
// stated by another version is kept.
TEST(ProfileTest, BoundsWithoutAMeaning_GetANewOne) {
  const auto row_with = [](const std::string& fields) {
    return *Profile::from_json(R"({"schema_version": 1, "rows": [{"experiment": "copy", "median": 2,
        "low": 1.9, "high": 2.1, "samples": [1, 2, 3])" +
                               fields + "}]}")
                ->rows[0]
                .value;
  };
  const Summary old = row_with("");
  EXPECT_EQ(old.interval.low, 1);
  EXPECT_EQ(interval_words(old), "range of 3");
  const Summary other = row_with(R"(, "interval": "90 %")");
  EXPECT_EQ(other.interval.low, 1.9);
  EXPECT_EQ(interval_words(other), "90 %");
  EXPECT_FALSE(row_with(R"(, "interval": "% of all")").coverage);
}

TEST(ProfileTest, IsAMachineAndAMachineIsAProfile) {
  const Profile profile = small_profile();
  const auto machine = Machine::from_json(profile.to_json());
  ASSERT_TRUE(machine.has_value());
  EXPECT_EQ(machine->to_json(), profile.machine.to_json());
  const auto back = Profile::from_json(profile.machine.to_json());
  ASSERT_TRUE(back.has_value());
  EXPECT_TRUE(back->rows.empty());
}

TEST(ProfileTest, KeysNameThePoint) {
  const Row one = row("bandwidth", 3, {1});
  EXPECT_EQ(one.key(), "bandwidth memory_node=3 mix=read");
  EXPECT_EQ(*one.parameter("memory_node"), ParameterValue(std::uint64_t{3}));
  EXPECT_EQ(one.parameter("threads"), nullptr);
}

TEST(ProfileTest, MistakesAreNamedByTheirPlace) {
  const auto error_of = [](const std::string& rows) {
    const auto profile = Profile::from_json(R"({"schema_version": 1, "rows": )" + rows + "}");
    return profile ? "none" : profile.error().message;
  };
  EXPECT_EQ(error_of("[{}]").substr(0, 19), "rows[0].experiment:");
  EXPECT_EQ(error_of(R"([{"experiment": "x", "median": "a"}])").substr(0, 15), "rows[0].median:");
  EXPECT_EQ(error_of(R"([{"experiment": "x", "samples": [1, -1]}])").substr(0, 18),
            "rows[0].samples[1]");
  EXPECT_EQ(error_of(R"([{"experiment": "x", "parameters": {"a": []}}])").substr(0, 20),
            "rows[0].parameters.a");
  EXPECT_EQ(error_of(R"([{"experiment": "x", "basis": "modelled"}])").substr(0, 14),
            "rows[0].basis:");
  EXPECT_EQ(error_of(R"([{"experiment": "x", "samples": [1, 1], "launches": [1]}])").substr(0, 17),
            "rows[0].launches:");
  EXPECT_EQ(error_of(R"([{"experiment": "x", "samples": [1], "launches": [1, 0]}])").substr(0, 17),
            "rows[0].launches:");
  EXPECT_EQ(error_of("3").substr(0, 5), "rows:");
}

// A number without a spread is its own bounds.
TEST(ProfileTest, PublishedNumber_NeedsNoSamples) {
  const auto profile = Profile::from_json(R"({"schema_version": 1, "rows": [
      {"experiment": "latency", "unit": "ns", "median": 97, "source": "Doe 2024"}]})");
  ASSERT_TRUE(profile.has_value()) << profile.error().message;
  EXPECT_EQ(profile->rows[0].basis, Basis::published) << "it names a source";
  const Summary& value = *profile->rows[0].value;
  EXPECT_EQ(value.runs, 0u);
  EXPECT_EQ(value.mad, 0);
  for (const double bound : {value.min, value.max, value.interval.low, value.interval.high}) {
    EXPECT_EQ(bound, 97);
  }
}

TEST(ProfileTest, PresetsAreProfilesAndEveryRowNamesItsSource) {
  for (const std::string& name : presets()) {
    const auto profile = Profile::load(name);
    ASSERT_TRUE(profile.has_value()) << profile.error().message;
    EXPECT_EQ(profile->machine.source, "preset " + name);
    EXPECT_EQ(profile->published(), !profile->rows.empty());
    for (const Row& row : profile->rows) EXPECT_FALSE(row.source.empty()) << row.key();
  }
}

// In parentheses: RC_ASSERT() overloads ||, and would evaluate both sides.
RC_GTEST_PROP(ProfileTest, AnyTextGivesAProfileOrInvalid, (const std::string& text)) {
  const auto profile = Profile::from_json(text);
  RC_ASSERT((profile || profile.error().code == ErrorCode::invalid));
}

// A profile with one byte changed, removed or repeated.
RC_GTEST_PROP(ProfileTest, ADamagedProfileGivesAProfileOrInvalid, ()) {
  std::string text = small_profile().to_json();
  const auto at = *rc::gen::inRange<std::size_t>(0, text.size());
  switch (*rc::gen::inRange(0, 3)) {
    case 0: text[at] = *rc::gen::arbitrary<char>(); break;
    case 1: text.erase(at, *rc::gen::inRange<std::size_t>(1, 200)); break;
    default: text.insert(at, text.substr(at / 2, 50));
  }
  const auto profile = Profile::from_json(text);
  RC_ASSERT((profile || profile.error().code == ErrorCode::invalid));
  if (profile) RC_ASSERT(Profile::from_json(profile->to_json()).has_value());
}

class ProfileFiles : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directory(directory_); }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::filesystem::path directory_ =
      std::filesystem::temp_directory_path() / ("profile-" + std::to_string(getpid()));
};

TEST_F(ProfileFiles, SaveReplacesKeepsTheModeAndLeavesNothingElse) {
  const auto path = directory_ / "p.json";
  ASSERT_TRUE(small_profile().save(path).has_value());
  chmod(path.c_str(), 0640);
  Profile other = small_profile();
  other.machine.name = "there";
  ASSERT_TRUE(other.save(path).has_value());
  const auto back = Profile::load(path.string());
  ASSERT_TRUE(back.has_value()) << back.error().message;
  EXPECT_EQ(back->machine.name, "there");
  EXPECT_EQ(back->machine.source, path);
  struct stat status{};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0640u);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_), {}), 1);
}

TEST_F(ProfileFiles, ErrorsNameTheFile) {
  const auto gone = directory_ / "none" / "p.json";
  EXPECT_NE(small_profile().save(gone).error().message.find("p.json"), std::string::npos);
  EXPECT_EQ(Profile::load(gone.string()).error().code, ErrorCode::absent);
  std::ofstream(directory_ / "cut.json") << "{\"schema_version\": 1,";
  EXPECT_EQ(Profile::load((directory_ / "cut.json").string()).error().code, ErrorCode::invalid);
  EXPECT_EQ(Profile::load(directory_.string()).error().code, ErrorCode::invalid);
}

}  // namespace
}  // namespace headrace
