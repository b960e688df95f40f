// SPDX-License-Identifier: Apache-2.0
// The program as a user starts it.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

namespace headrace::kv_bench {
namespace {

struct Ended {
  int code = -1;
  std::string out;  // output, including errors
};

Ended run_program(const std::string& arguments) {
  Ended ended;
  FILE* const pipe = ::popen((HEADRACE_BENCH_KV " " + arguments + " 2>&1").c_str(), "r");
  std::array<char, 4096> text;
  while (const std::size_t got = std::fread(text.data(), 1, text.size(), pipe)) {
    ended.out.append(text.data(), got);
  }
  ended.code = WEXITSTATUS(::pclose(pipe));
  return ended;
}

TEST(Program, ModelsAMachine) {
  const Ended ended = run_program("--machine cxl-a1000 --workload C");
  ASSERT_EQ(ended.code, 0) << ended.out;
  const auto document = nlohmann::json::parse(ended.out);
  EXPECT_EQ(document.at("rows").size(), 9U);
  for (const auto& row : document.at("rows")) EXPECT_EQ(row.at("basis"), "modelled");
}

TEST(Program, SaysInOneLineWhatIsWrong) {
  const Ended wrong = run_program("--threads many");
  EXPECT_EQ(wrong.code, 2);
  EXPECT_EQ(wrong.out, "headrace-bench-kv: --threads 'many': give 1 to 100000\n");
  EXPECT_EQ(run_program("--machine nowhere.json").code, 3);
  EXPECT_EQ(run_program("--help").out.rfind("Usage: headrace-bench-kv", 0), 0U);
}

}  // namespace
}  // namespace headrace::kv_bench
