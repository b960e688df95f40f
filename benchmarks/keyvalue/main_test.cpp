// SPDX-License-Identifier: Apache-2.0
// The program as a user starts it.
#include <gtest/gtest.h>

#include "tests/support/run_program.h"

namespace headrace::kv_bench {
namespace {

test::Ended run_program(const std::string& arguments) {
  return test::run_program(HEADRACE_BENCH_KV " " + arguments);
}

TEST(Program, PrintsItsHelp) {
  EXPECT_EQ(run_program("--help").out.rfind("Usage: headrace-bench-kv", 0), 0U);
}

TEST(Program, SaysInOneLineWhatIsWrong) {
  const struct {
    const char* arguments;
    int code;
    const char* message;
  } cases[] = {
      {"--clients many", 2, "--clients 'many': give 1 to 100000"},
      {"--value 1e99", 2, "--value '1e99': give 1 to 1048576"},
      {"--fast", 2, "no option '--fast'; --help lists them"},
      {"--seed", 2, "--seed needs N"},
      {"--task load", 2, "which --socket?"},
      {"--task store", 2, "which --socket?"},
      {"--task place", 2, "which --server?"},
      {"--task serve --server 7", 2, "serve needs --server, its parent, and -- PROGRAM"},
      {"--task nap", 2,
       "--task 'nap': give load, drive (default), place, store, or serve before -- "
       "PROGRAM..."},
      {"--protocol smtp", 3, "--protocol 'smtp': give redis (default), memcached"},
  };
  for (const auto& [arguments, code, message] : cases) {
    const test::Ended wrong = run_program(arguments);
    EXPECT_EQ(wrong.code, code) << arguments;
    EXPECT_EQ(wrong.out, "headrace-bench-kv: " + std::string(message) + "\n");
  }
}

}  // namespace
}  // namespace headrace::kv_bench
