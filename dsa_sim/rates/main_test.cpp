// SPDX-License-Identifier: Apache-2.0
// headrace-dsa-rates as `headrace model dsa` starts it.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace headrace::dsa_rates {
namespace {

struct Ended {
  int code = -1;
  std::vector<std::string> lines;  // errors included
};

Ended run_program(const std::string& arguments) {
  Ended ended;
  const std::string command = std::string(HEADRACE_DSA_RATES) + " " + arguments + " 2>&1";
  FILE* const pipe = ::popen(command.c_str(), "r");
  std::string out;
  std::array<char, 4096> text;
  while (const std::size_t got = std::fread(text.data(), 1, text.size(), pipe)) {
    out.append(text.data(), got);
  }
  ended.code = WEXITSTATUS(::pclose(pipe));
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) ended.lines.push_back(line);
  return ended;
}

TEST(DsaRatesProgram, PrintsTheRows) {
  const Ended ended = run_program(
      R"(xeon-max 1 '[{"part": "submission", "bytes": [4096, 65536], "method": "single"}]')");
  ASSERT_EQ(ended.code, 0) << ended.lines.back();
  ASSERT_EQ(ended.lines.size(), 1U);
  const auto rows = nlohmann::json::parse(ended.lines[0]).at("rows");
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[1].at("basis"), "modelled");
  EXPECT_EQ(rows[1].at("parameters").at("bytes"), 65536);
  EXPECT_GT(rows[1].at("median"), rows[0].at("median"));
}

TEST(DsaRatesProgram, SizesThatNoDeviceCopies_HaveAReason) {
  const Ended ended =
      run_program(R"(xeon-max 1 '[{"part": "submission", "bytes": [0, 3221225472]}]')");
  ASSERT_EQ(ended.code, 0) << ended.lines.back();
  const auto rows = nlohmann::json::parse(ended.lines[0]).at("rows");
  EXPECT_EQ(rows.size(), 12U);
  for (const auto& row : rows) {
    EXPECT_NE(row.dump().find("ask for 1 byte to 2 GiB"), std::string::npos) << row;
  }
}

TEST(DsaRatesProgram, Help_NamesTheArguments) {
  EXPECT_EQ(run_program("--help").lines.at(0),
            "Usage: headrace-dsa-rates MACHINE ROUNDS SELECTIONS");
}

TEST(DsaRatesProgram, AMistake_IsOneLineAndAnExitCode) {
  for (const auto& [arguments, code] :
       std::vector<std::pair<std::string, int>>{{"", 2},
                                                {"xeon-max many '[]'", 2},
                                                {"xeon-max 0 '[]'", 2},
                                                {"xeon-max 1 '{'", 2},
                                                {"xeon-max 1 '[7]'", 2},
                                                {"xeon-max 1 '[{\"part\": 1.5}]'", 2},
                                                {"xeon-max 1 '[{\"part\": \"speed\"}]'", 2},
                                                {"nowhere 1 '[]'", 3},
                                                {"h100 1 '[]'", 4}}) {
    const Ended ended = run_program(arguments);
    EXPECT_EQ(ended.code, code) << arguments;
    ASSERT_EQ(ended.lines.size(), 1U) << arguments;
    EXPECT_TRUE(ended.lines[0].starts_with("headrace-dsa-rates: ")) << ended.lines[0];
  }
}

}  // namespace
}  // namespace headrace::dsa_rates
