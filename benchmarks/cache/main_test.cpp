// SPDX-License-Identifier: Apache-2.0
// The program as a user starts it.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

namespace headrace::cache_bench {
namespace {

struct Ended {
  int code = -1;
  std::string out;  // its output, errors included
};

Ended run_program(const std::string& arguments) {
  Ended ended;
  FILE* const pipe = ::popen((HEADRACE_BENCH_CACHE " " + arguments + " 2>&1").c_str(), "r");
  std::array<char, 4096> text;
  while (const std::size_t got = std::fread(text.data(), 1, text.size(), pipe)) {
    ended.out.append(text.data(), got);
  }
  ended.code = WEXITSTATUS(::pclose(pipe));
  return ended;
}

TEST(Program, PrintsARow) {
  const Ended ended =
      run_program("--implementation chase --scenario hit-one-hot --operations 1024 --threads 2");
  ASSERT_EQ(ended.code, 0) << ended.out;
  const auto row = nlohmann::json::parse(ended.out);
  EXPECT_EQ(row.at("implementation"), "chase");
  EXPECT_EQ(row.at("threads"), 2);
  EXPECT_EQ(row.at("operations"), 2048);
}

TEST(Program, List_HasAllImplementations) {
  EXPECT_EQ(run_program("--help").out.rfind("Usage: headrace-bench-cache", 0), 0U);
  EXPECT_EQ(nlohmann::json::parse(run_program("--list").out).at("implementations").size(), 7U);
}

TEST(Program, WrongOption_IsReportedInOneLine) {
  const Ended wrong = run_program("--threads many");
  EXPECT_EQ(wrong.code, 2);
  EXPECT_EQ(wrong.out, "headrace-bench-cache: --threads 'many': give 1 to 4096\n");
  EXPECT_EQ(run_program("--implementation none --scenario hit-spread").code, 3);
}

}  // namespace
}  // namespace headrace::cache_bench
