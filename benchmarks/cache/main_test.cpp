// SPDX-License-Identifier: Apache-2.0
// The program as a user starts it.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/run_program.h"

namespace headrace::cache_bench {
namespace {

test::Ended run_program(const std::string& arguments) {
  return test::run_program(HEADRACE_BENCH_CACHE " " + arguments);
}

TEST(Program, PrintsARow) {
  const test::Ended ended =
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
  const struct {
    const char* arguments;
    const char* message;
  } cases[] = {
      {"--threads many", "--threads 'many': give 1 to 4096"},
      {"--threads 0", "--threads '0': give 1 to 4096"},
      {"--threads 1x", "--threads '1x': give 1 to 4096"},
      {"--seconds nan", "--seconds 'nan': give 0.001 to 3600"},
      {"--extents 1e99", "--extents '1e99': give 16 to 1073741824"},
      {"--budget 1", "--budget '1': give 1048576 to 1099511627776"},
      {"--seed", "--seed needs N"},
      {"hit-spread", "no option 'hit-spread'; --help lists them"},
      {"-- x", "no option '--'; --help lists them"},
  };
  for (const auto& [arguments, message] : cases) {
    const test::Ended wrong = run_program(arguments);
    EXPECT_EQ(wrong.code, 2) << arguments;
    EXPECT_EQ(wrong.out, "headrace-bench-cache: " + std::string(message) + "\n");
  }
  EXPECT_EQ(run_program("--implementation none --scenario hit-spread").code, 3);
}

}  // namespace
}  // namespace headrace::cache_bench
